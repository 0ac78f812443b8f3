"""How a text flows: sources → Corpus → tokens → Vocab → ids → Stream. Nothing here needs torch."""

from recur.text.corpus import Corpus
from recur.text.encoded import encoded
from recur.text.pairs import Pair, read_pairs
from recur.text.stream import Batch, Stream
from recur.text.tokens import BOS, EOS, PAD, SPECIALS, UNK, Characters, Subwords, Tokenizer, Words, make_tokenizer
from recur.text.vocab import Vocab, fit_lines, fit_vocab

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Batch",
    "Characters",
    "Corpus",
    "Pair",
    "Stream",
    "Subwords",
    "Tokenizer",
    "Vocab",
    "Words",
    "encoded",
    "fit_lines",
    "fit_vocab",
    "make_tokenizer",
    "read_pairs",
]
