"""The C++ core of the `native` backend, and how it is called."""

from recur.native import forks as forks
