"""scan and its backends. `loop.py` is the definition; the others give the same numbers faster."""

from recur.ops.both import scan_both as scan_both
from recur.ops.check import GivenState
from recur.ops.pytrees import register_result as register_result
from recur.ops.scan import BACKENDS, Scanned, scan
from recur.ops.scan import check_backend as check_backend
from recur.ops.trace import Trace

__all__ = ["BACKENDS", "GivenState", "Scanned", "Trace", "scan"]
