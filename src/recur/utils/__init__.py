"""Helpers without a subject of their own: files, lazy imports, plotting, process launch, types."""
