"""Blend of a tagger with a CRF on features of words, which is the better model on small training sets.

    score(y | x) = a score_network(y | x) + b score_features(y | x)

Both are linear-chain CRFs, and so is their blend: the product P_network^a P_features^b, normalised. (a, b) are the
pair of SHARES with the highest likelihood of the validation set; (1, 0) is the network alone, (0, 1) the linear CRF
alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recur.baselines.transducers import FeatureCRF
from recur.data.text import Sentence, Vocab
from recur.models import WordTagger
from recur.models.tagger import IndependentTags, WordBatch
from recur.nn import CRF
from recur.nn.crf import FixedCRF, Transitions
from recur.runs import Vocabs
from recur.tasks.common.classification import class_names

SHARES = tuple((a, b) for a in (0.0, 0.25, 0.5, 0.75, 1.0) for b in (0.0, 0.25, 0.5, 0.75, 1.0) if a + b >= 0.75)
"""Pairs (a, b) that are tried on the validation set. Their sum may be other than 1, which sets the temperature."""


NETWORK_ALONE, LINEAR_ALONE = (1.0, 0.0), (0.0, 1.0)


class BlendedTagger(WordTagger):
    """Tagger with a CRF, blended with a linear CRF on features of words."""

    shares: Tensor

    def __init__(self, features: Vocab, tags: Sequence[str], *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.linear = FeatureCRF(features, tags)
        self.register_buffer("shares", torch.tensor([1.0, 0.0]))

    @property
    def decoder(self) -> IndependentTags | CRF:
        assert isinstance(self.tags, CRF)
        return self.blended(*self.shares.tolist())

    def blended(self, a: float, b: float) -> FixedCRF:
        """Return the CRF of a pair of shares."""
        assert isinstance(self.tags, CRF)
        pairs = zip(self.tags.moves(constrained=False), self.linear.moves, strict=True)
        return FixedCRF(Transitions(*(a * mine + b * other for mine, other in pairs)), self.tags.allowed)

    def parts(self, words: WordBatch) -> tuple[Tensor, Tensor]:
        """Return the scores (B, W, classes) of the network and of the linear CRF."""
        assert words.features is not None
        return self(words), self.linear(words.features)

    def scores(self, words: WordBatch) -> Tensor:
        a, b = self.shares.tolist()
        if not b:
            found: Tensor = a * self(words)
            return found
        mine, other = self.parts(words)
        blend: Tensor = a * mine + b * other
        return blend

    @property
    def network_share(self) -> float:
        """Share of the network in the blend: 1 is the network alone, 0 the linear CRF alone."""
        a, b = self.shares.tolist()
        return float(a / (a + b))


class LazyFeatureCRF:
    """Linear CRF of a training set, fitted once, when it is needed."""

    def __init__(self, vocabs: Vocabs, sentences: Sequence[Sentence]) -> None:
        self.vocabs, self.sentences = vocabs, sentences

    @functools.cached_property
    def fitted(self) -> FeatureCRF:
        return FeatureCRF.fit(self.sentences, self.vocabs.get("features"), class_names(self.vocabs["labels"]))
