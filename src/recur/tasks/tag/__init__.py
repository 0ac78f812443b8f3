"""A tag for every word, n → n: CoNLL columns."""
