"""Lines of a given label, 1 → n: lines `label TAB text`, and text for a label."""
