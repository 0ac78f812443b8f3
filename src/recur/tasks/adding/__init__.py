"""The adding problem: the sum of two marked numbers in a long row of numbers."""
