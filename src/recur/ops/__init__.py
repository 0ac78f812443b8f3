"""scan and its backends. `loop` is the definition; the other backends give the same numbers faster."""

from recur.ops.backends import BACKENDS
from recur.ops.backends import check_backend as check_backend
from recur.ops.call import GivenState
from recur.ops.call_cache import scan_both as scan_both
from recur.ops.scan import scan
from recur.ops.trace import ScanOutput, Trace

__all__ = ["BACKENDS", "GivenState", "ScanOutput", "Trace", "scan"]
