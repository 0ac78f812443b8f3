"""`python -m recur`, where the command `recur` is not on the path."""

from recur.cli import main

main()
