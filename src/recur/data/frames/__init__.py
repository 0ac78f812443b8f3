"""Data that is in memory: frames of pandas or polars, arrays and lists, as the columns and files that tasks read.

None of those packages is imported: what looks like a frame is one.
"""

from recur.data.frames.columns import columns_of, csv_lines, is_frame, is_series, one_line
from recur.data.frames.files import NAMES, is_data, write_data

__all__ = ["NAMES", "columns_of", "csv_lines", "is_data", "is_frame", "is_series", "one_line", "write_data"]
