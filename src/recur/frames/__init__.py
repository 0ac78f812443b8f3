"""Data that is in memory: frames of pandas or polars, arrays and lists, as the columns and files that tasks read.

None of those packages is imported: what looks like a frame is one.
"""

from recur.frames.columns import columns_of, csv_lines, is_frame, is_series, one_line

__all__ = ["columns_of", "csv_lines", "is_frame", "is_series", "one_line"]
