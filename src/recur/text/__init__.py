"""How a text flows: sources → Corpus → tokens → Vocab → ids → Stream. Nothing here needs torch."""

from recur.text.arrays import Ids
from recur.text.conll import Sentence, TagColumns, read_tagged, read_words
from recur.text.corpus import Corpus
from recur.text.encoded import encoded
from recur.text.labelled import LabelledText, layout_note, read_labelled
from recur.text.lines import numbered_lines
from recur.text.pairs import Pair, read_pairs
from recur.text.recognise import Recognised, between_spaces, recognise
from recur.text.specials import BOS, EOS, PAD, SPECIALS, UNK
from recur.text.stream import Batch, Stream
from recur.text.subwords import Subwords
from recur.text.tokens import Characters, Lines, Tokenizer, Words, make_tokenizer
from recur.text.trees import Tree, parse_tree, read_trees, restructured, structure_of
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
    "Ids",
    "LabelledText",
    "Lines",
    "Pair",
    "Recognised",
    "Sentence",
    "Stream",
    "Subwords",
    "TagColumns",
    "Tokenizer",
    "Tree",
    "Vocab",
    "Words",
    "between_spaces",
    "encoded",
    "fit_lines",
    "fit_vocab",
    "layout_note",
    "make_tokenizer",
    "numbered_lines",
    "parse_tree",
    "read_labelled",
    "read_pairs",
    "read_tagged",
    "read_trees",
    "read_words",
    "recognise",
    "restructured",
    "structure_of",
]
