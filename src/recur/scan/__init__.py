"""scan and its backends. `loop.py` is the definition; the others give the same numbers faster."""

from recur.scan.scan import BACKENDS, Scanned, check_backend, scan
from recur.scan.trace import Trace

__all__ = ["BACKENDS", "Scanned", "Trace", "check_backend", "scan"]
