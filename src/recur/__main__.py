"""`python -m recur`, for a machine where the command `recur` is not on the path."""

from recur.utils.imports import leave_current_folder

leave_current_folder()

from recur.cli import main  # noqa: E402  what it imports must not come from the current folder

main()
