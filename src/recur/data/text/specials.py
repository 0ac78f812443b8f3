"""The four tokens that every vocabulary begins with, and their ids: all else imports them from here."""

SPECIALS = ("<unk>", "<pad>", "<bos>", "<eos>")
UNK, PAD, BOS, EOS = range(4)
