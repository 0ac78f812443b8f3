"""scan and its backends. `loop` is the definition; the other backends give the same numbers faster."""

from recur.ops.backends import BACKENDS
from recur.ops.backends import check_backend as check_backend
from recur.ops.bidirectional import scan_both as scan_both
from recur.ops.checks import GivenState
from recur.ops.scan import ScanOutput, scan
from recur.ops.trace import Trace

__all__ = ["BACKENDS", "GivenState", "ScanOutput", "Trace", "scan"]
