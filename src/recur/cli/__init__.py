"""The command line: one verb a file. torch and NumPy are imported inside functions, so that help is quick."""

from recur.cli.app import main

__all__ = ["main"]
