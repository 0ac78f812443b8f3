"""Text: sources → Corpus → tokens → Vocab → ids → Stream. Nothing here imports torch.

`__all__` lists the public names; the others are for use inside recur.

    >>> corpus = recur.data.text.Corpus.of("book.txt")
    >>> vocab = recur.data.text.fit_vocab(corpus, "char")
    >>> recur.data.text.SPECIALS, recur.data.text.UNK == vocab.tokens.index("<unk>")
    (('<unk>', '<pad>', '<bos>', '<eos>'), True)
"""

from recur.data.text.corpus import Corpus
from recur.data.text.labelled import LabelledText, Pair, read_labelled, read_pairs
from recur.data.text.labelled import layout_note as layout_note
from recur.data.text.labelled import numbered_lines as numbered_lines
from recur.data.text.recognition import RecognisedData as RecognisedData
from recur.data.text.recognition import recognise as recognise
from recur.data.text.stream import Batch, Stream
from recur.data.text.stream import Ids as Ids
from recur.data.text.tokenizers import BOS, EOS, PAD, SPECIALS, UNK, Characters, Lines, Subwords, Tokenizer, Words
from recur.data.text.tokenizers import between_spaces as between_spaces
from recur.data.text.tokenizers import make_tokenizer as make_tokenizer
from recur.data.text.treebanks import Sentence, TagColumns, Tree, parse_tree, read_tagged, read_trees, read_words
from recur.data.text.treebanks import restructured as restructured
from recur.data.text.treebanks import structure_of as structure_of
from recur.data.text.vocabulary import Vocab, fit_vocab
from recur.data.text.vocabulary import encoded as encoded
from recur.data.text.vocabulary import fit_lines as fit_lines

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
