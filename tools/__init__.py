"""Tools for developers of recur; no part of the package."""
