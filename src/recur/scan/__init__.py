"""scan and its backends. `loop.py` is the definition; the others give the same numbers faster."""

from recur.scan.both import scan_both as scan_both
from recur.scan.check import GivenState
from recur.scan.pytrees import register_result as register_result
from recur.scan.scan import BACKENDS, Scanned, scan
from recur.scan.scan import check_backend as check_backend
from recur.scan.trace import Trace

__all__ = ["BACKENDS", "GivenState", "Scanned", "Trace", "scan"]
