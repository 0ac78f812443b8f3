"""The C++ core of the `native` backend, and how it is called."""

from recur.ops.cpu import forks as forks
