"""scan and its backends. `loop.py` is the definition; the others give the same numbers faster."""

from recur.scan.native_backend import assembled as native_program
from recur.scan.native_backend import cannot as native_cannot
from recur.scan.native_stack import NativeStack
from recur.scan.scan import BACKENDS, Scanned, check_backend, scan
from recur.scan.trace import Trace

__all__ = ["BACKENDS", "NativeStack", "Scanned", "Trace", "check_backend", "native_cannot", "native_program", "scan"]
