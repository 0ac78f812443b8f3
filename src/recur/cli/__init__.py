"""The command line: one verb a file. Modules here import torch and NumPy inside their functions, so that help is quick."""

from recur.cli.app import main

__all__ = ["main"]
