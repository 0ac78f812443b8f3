"""One column of a table from the others of its row, 1 → 1: a CSV file."""
