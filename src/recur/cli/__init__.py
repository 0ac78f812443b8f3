"""Command line, one command per file. torch and NumPy are imported inside functions, so that --help is fast."""

from recur.cli.app import main

__all__ = ["main"]
