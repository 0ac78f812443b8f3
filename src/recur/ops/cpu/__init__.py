"""C++ core of the `native` backend, and its Python interface."""

from recur.ops.cpu import library as library
