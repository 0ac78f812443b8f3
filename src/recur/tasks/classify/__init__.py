"""A class for every text, n → 1: lines `label TAB text`."""
