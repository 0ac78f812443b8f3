"""Arrays by what they hold."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]
"""Whole numbers: ids of tokens, counts, places."""
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
