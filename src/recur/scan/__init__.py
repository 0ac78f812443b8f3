"""scan and its backends. `loop.py` is the definition; the others give the same numbers faster."""

from recur.scan.both import scan_both
from recur.scan.check import GivenState
from recur.scan.pytrees import register_result
from recur.scan.scan import BACKENDS, Scanned, check_backend, scan
from recur.scan.trace import Trace

__all__ = ["BACKENDS", "GivenState", "Scanned", "Trace", "check_backend", "register_result", "scan", "scan_both"]
