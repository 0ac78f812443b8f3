"""How a text flows: sources → Corpus → tokens → Vocab → ids → Stream. Nothing here needs torch.

`__all__` is what is public; the other names are for recur itself.

    >>> corpus = recur.text.Corpus.of("book.txt")
    >>> vocab = recur.text.fit_vocab(corpus, "char")
    >>> recur.text.SPECIALS, recur.text.UNK == vocab.tokens.index("<unk>")
    (('<unk>', '<pad>', '<bos>', '<eos>'), True)
"""

from recur.text.arrays import Ids as Ids
from recur.text.conll import Sentence, TagColumns, read_tagged, read_words
from recur.text.corpus import Corpus
from recur.text.encoded import encoded as encoded
from recur.text.labelled import LabelledText, read_labelled
from recur.text.labelled import layout_note as layout_note
from recur.text.lines import numbered_lines as numbered_lines
from recur.text.pairs import Pair, read_pairs
from recur.text.recognise import Recognised as Recognised
from recur.text.recognise import recognise as recognise
from recur.text.specials import BOS, EOS, PAD, SPECIALS, UNK
from recur.text.stream import Batch, Stream
from recur.text.subwords import Subwords
from recur.text.symbols import between_spaces as between_spaces
from recur.text.tokens import Characters, Lines, Tokenizer, Words
from recur.text.tokens import make_tokenizer as make_tokenizer
from recur.text.trees import Tree, parse_tree, read_trees
from recur.text.trees import restructured as restructured
from recur.text.trees import structure_of as structure_of
from recur.text.vocab import Vocab, fit_vocab
from recur.text.vocab import fit_lines as fit_lines

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Batch",
    "Characters",
    "Corpus",
    "LabelledText",
    "Lines",
    "Pair",
    "Sentence",
    "Stream",
    "Subwords",
    "TagColumns",
    "Tokenizer",
    "Tree",
    "Vocab",
    "Words",
    "fit_vocab",
    "parse_tree",
    "read_labelled",
    "read_pairs",
    "read_tagged",
    "read_trees",
    "read_words",
]
