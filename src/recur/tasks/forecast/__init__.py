"""Series of numbers from CSV files: what comes next, with bands."""
