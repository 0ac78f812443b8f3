"""The studio: a local page over a folder of runs."""
