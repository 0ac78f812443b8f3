"""The four tokens that every vocabulary begins with, and their ids: the one place that says so."""

SPECIALS = ("<unk>", "<pad>", "<bos>", "<eos>")
UNK, PAD, BOS, EOS = range(4)
