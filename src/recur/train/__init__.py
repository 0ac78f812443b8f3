"""Training: config.py says what, data.py brings the text, loop.py trains, run.py keeps it, measure.py judges it."""
