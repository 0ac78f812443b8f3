"""Words as a tagger reads them: tokens, and beside them what the word looks like.

    x_t = [embedding of token t; characters of its word; casing of its word]

A word's characters are read by an LSTM from both ends (Lample et al. 2016), whose two last states they become, or by a
convolution of three characters with maxout, the largest over the word (Ma and Hovy 2016; Goodfellow et al. 2013). Words
that stand in a batch several times are read once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from recur.data.text.casing import CASINGS
from recur.models.embedding import TokenEmbedding
from recur.models.word_options import WordTaggerOptions
from recur.nn import Pooling, Recurrent

CASING_WIDTH = 8
PIECES = 2
"""Linear maps whose largest is a maxout unit."""


class Forms(NamedTuple):
    """The U distinct words of a batch."""

    characters: Tensor
    """Ids (U, C), <pad> behind the ends."""
    lengths: Tensor | None
    """(U,); None where all words are as long."""
    casing: Tensor
    """(U,)."""
    which: Tensor
    """(B, T): the word that each token is of."""


class Words(NamedTuple):
    """Sentences in a batch."""

    ids: Tensor
    """Of tokens (B, T)."""
    lengths: Tensor | None
    """Tokens in each sentence (B,); None where all are as long."""
    ends: Tensor | None
    """The last token of each word (B, W), 0 behind the last word; None where every token is a word."""
    counts: Tensor
    """Words in each sentence (B,)."""
    forms: Forms | None = None

    @classmethod
    def of_tokens(cls, ids: Tensor, lengths: Tensor | None = None) -> Words:
        """Where every token is a word."""
        return cls(ids, lengths, None, torch.full(ids.shape[:1], ids.shape[1]) if lengths is None else lengths)

    def to(self, device: torch.device) -> Words:
        """On a device; lengths and counts are asked for by the host, and stay there."""
        forms = self.forms and self.forms._replace(
            characters=self.forms.characters.to(device),
            casing=self.forms.casing.to(device),
            which=self.forms.which.to(device),
        )
        ends = self.ends if self.ends is None else self.ends.to(device)
        return self._replace(ids=self.ids.to(device), ends=ends, forms=forms)


class WordForms(nn.Module):
    """Vectors of words (U, width) from their characters and casing, of an alphabet of K characters."""

    def __init__(self, K: int, options: WordTaggerOptions) -> None:
        super().__init__()
        o, size = options, options.character_width
        self.kind = o.characters
        self.width = (size if o.characters != "none" else 0) + (CASING_WIDTH if o.casing else 0)
        self.casing = TokenEmbedding(len(CASINGS), CASING_WIDTH, "normal:0.5") if o.casing else None
        if o.characters != "none":
            self.embedding = TokenEmbedding(K, o.character_embedding, o.embedding_init)
        if o.characters == "lstm":
            self.recurrent = Recurrent("lstm", o.character_embedding, -(-size // 2), direction="both")
            self.pooling = Pooling("last", 2 * (-(-size // 2)), direction="both")
        if o.characters == "cnn":
            self.convolution = nn.Conv1d(o.character_embedding, PIECES * size, 3, padding=1)

    def forward(self, forms: Forms) -> Tensor:
        parts = []
        if self.kind == "lstm":
            states = self.recurrent(self.embedding(forms.characters), lengths=forms.lengths).outputs
            parts.append(self.pooling(states, forms.lengths))
        if self.kind == "cnn":
            parts.append(self._convolved(forms))
        if self.casing is not None:
            parts.append(self.casing(forms.casing))
        return torch.cat(parts, 1)

    def _convolved(self, forms: Forms) -> Tensor:
        x, there = self.embedding(forms.characters), None
        if forms.lengths is not None:
            there = torch.arange(forms.characters.shape[1]) < forms.lengths[:, None]
            there = there.to(forms.characters.device)[..., None]
            x = x * there  # what stands behind a word is nothing
        found: Tensor = self.convolution(x.transpose(1, 2)).unflatten(1, (-1, PIECES)).amax(2)
        return (found if there is None else found.masked_fill(~there.transpose(1, 2), -torch.inf)).amax(2)


def at_tokens(vectors: Tensor, which: Tensor) -> Tensor:
    """Vectors (U, width) of words at each of their tokens (B, T, width)."""
    return embedding(which, vectors)
