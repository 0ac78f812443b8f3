"""A tag for every word, n → n.

    h_t = the recurrent network over words (words.py), in one or both directions       x_t = V h_t + c

    softmax   P(tag of word t) = softmax(x_t), each for itself
    crf       P(tags) ∝ exp(Σ x_t[tag] + Σ transitions), all together (layers/crf.py)

A word's tag is read at its last token, so that a network of one direction tags while it reads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from recur.data.text import UNK
from recur.errors import OptionError
from recur.models.embedding import TokenEmbedding
from recur.models.options import TaggerOptions
from recur.models.reader import Reader
from recur.models.stack import State, depth
from recur.models.time import beside, split_state, whole
from recur.models.word_options import WordTaggerOptions
from recur.models.words import Forms, WordForms, Words, at_tokens
from recur.nn import CRF, Moves, NBest, OutputRecurrent, drop_steps
from recur.nn.crf import inside, viterbi
from recur.nn.output_recurrence import AT_ONCE

UNSEEN = -1
"""In the place of a tag: one that training did not have, or none, behind the last word."""


class Sum(NamedTuple):
    """A sum over words, and how many they are."""

    total: Tensor
    words: int


class Each(nn.Module):
    """Tags each for itself, with what `CRF` has: scores x (B, W, K) of words and counts (B,) of them."""

    def log_likelihood(self, x: Tensor, counts: Tensor, tags: Tensor) -> Tensor:
        chosen = x.log_softmax(-1).gather(2, tags.clamp(min=0)[..., None])[..., 0]
        return chosen.masked_fill(~inside(x, counts), 0).sum(1)

    def marginals(self, x: Tensor, counts: Tensor) -> Tensor:
        return x.softmax(-1).masked_fill(~inside(x, counts)[..., None], 0)

    def nbest(self, x: Tensor, counts: Tensor, n: int = 1) -> NBest:
        return viterbi(x.double().log_softmax(-1), counts, Moves.nothing(x), n)


class TagsOut(nn.Module):
    """What taggers share once a word has its scores: their loss, the best tags, and what each is worth."""

    class_weights: Tensor | None
    tags: Each | CRF

    def loss(self, scores: Tensor, counts: Tensor, tags: Tensor) -> Tensor:
        """The mean over words; of words whose tags weigh differently, by their weights."""
        if self.class_weights is not None:
            return cross_entropy(scores.flatten(0, 1), tags.flatten(), self.class_weights, ignore_index=UNSEEN)
        total, words = self.negative_log_likelihood(scores, counts, tags)
        return total / max(words, 1)

    def negative_log_likelihood(self, scores: Tensor, counts: Tensor, tags: Tensor) -> Sum:
        """The sum over the sentences in which every tag was learned from; of others there is none."""
        known = ((tags != UNSEEN) | ~inside(scores, counts)).all(1).cpu()
        if not known.all():
            if not known.any():
                return Sum(scores.sum() * 0, 0)
            scores, counts, tags = scores[known], counts[known], tags[known]
        return Sum(-self.tags.log_likelihood(scores, counts, tags).sum(), int(counts.sum()))


class Tagger(TagsOut, Reader):
    """Scores (B, W, classes) of words, each for itself."""

    options: TaggerOptions

    def __init__(
        self, K: int, classes: int, options: TaggerOptions, class_weights: Tensor | None = None, *, beside: int = 0
    ) -> None:
        super().__init__(K, classes, options, class_weights, beside=beside)
        self.tags = Each()

    def forward(self, words: Words, tags: Tensor | None = None) -> Tensor:
        """`tags` (B, W), those to learn, are not looked at: the states know nothing of them."""
        return self._read_out(self.read(words.ids, words.lengths), words.ends)

    def _read_out(self, states: Tensor, ends: Tensor | None) -> Tensor:
        o = self.options
        if ends is not None:
            states = states.gather(1, ends[..., None].expand(-1, -1, states.shape[2]))
        scores: Tensor = self.output(
            drop_steps(states, o.dropout_output, training=self.training, variational=o.variational)
        )
        return scores

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: Forms | None = None) -> tuple[Tensor, State]:
        """One token of each row, (B,): its scores, and the state."""
        h, state = self.read_step(ids, state)
        return self.output(h), state


class WordTagger(Tagger):
    """… which may look at the words, and tag them together."""

    options: WordTaggerOptions
    frequencies: Tensor | None

    def __init__(
        self,
        K: int,
        classes: int,
        options: WordTaggerOptions,
        class_weights: Tensor | None = None,
        *,
        characters: int = 0,
        frequencies: Tensor | None = None,
        allowed: Moves | None = None,
    ) -> None:
        """Of K tokens and an alphabet of `characters`. `frequencies` (K,) say how often tokens were seen, for
        `unknown`; `allowed` are the moves between tags of a CRF."""
        o, with_forms = options, options.casing or options.characters != "none"
        forms = WordForms(characters, o) if with_forms else None
        super().__init__(K, classes, o, class_weights, beside=0 if forms is None else forms.width)
        self.forms = forms
        if o.crf:
            self.tags = CRF(classes, allowed)
        self.register_buffer("frequencies", frequencies if o.unknown else None, persistent=False)

    def forward(self, words: Words, tags: Tensor | None = None) -> Tensor:
        states = self.read(self._forget(words.ids), words.lengths, self._look(words.forms))
        return self._read_out(states, words.ends)

    def _look(self, forms: Forms | None) -> Tensor | None:
        if self.forms is None or forms is None:
            return None
        o = self.options
        vectors = at_tokens(self.forms(forms), forms.which)
        return drop_steps(vectors, o.dropout_input, training=self.training, variational=o.variational)

    def _forget(self, ids: Tensor) -> Tensor:
        """In training, rare words are unknown now and then, so that unknown ones are learned (Kiperwasser and Goldberg
        2016): with probability α / (α + how often the word was seen)."""
        if not self.training or self.frequencies is None:
            return ids
        alpha = self.options.unknown
        chance = alpha / (alpha + self.frequencies[ids])
        return ids.masked_fill(torch.rand_like(chance) < chance, UNK)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: Forms | None = None) -> tuple[Tensor, State]:
        """One token of each row, (B,): its scores, and the state. `forms.which` is (B, 1)."""
        looks = self._look(forms)
        h, state = self.read_step(ids, state, None if looks is None else looks[:, 0])
        return self.output(h), state


class OutputTagger(TagsOut):
    """A tagger whose steps see the class of the step before, and no hidden state: h_t = tanh(U x_t + W y_{t−1} + b).

    With the classes to learn all steps are computed at once; without, one after the other, each behind the likeliest
    class of the one before. A class is read at every step.
    """

    def __init__(self, K: int, classes: int, options: TaggerOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        if o.direction != "forward":
            raise OptionError(f"--recurrence output reads forward, got --direction {o.direction}")
        self.embedding = TokenEmbedding(
            K, o.embedding, o.embedding_init, drop=o.dropout_input, drop_tokens=o.dropout_embedding
        )
        self.clock = o.clock
        width = self.embedding.width + (self.clock is not None)
        self.network = OutputRecurrent(width, o.hidden, classes, depth=depth(o), dropout=o.dropout_output)
        self.backend = AT_ONCE
        self.tags = Each()
        self.register_buffer("class_weights", class_weights, persistent=False)

    @property
    def output(self) -> nn.Linear:
        return self.network.output

    def forward(self, words: Words, tags: Tensor | None = None) -> Tensor:
        """Scores (B, T, classes); with the `tags` (B, T), behind those."""
        x = self.embedding(words.ids)
        if self.clock is not None:
            x = beside(x, whole(words.ids), self.clock)
        targets = None
        if tags is not None:
            targets = one_hot(tags.clamp(min=0), self.network.output_size).to(x)
        scores: Tensor = self.network(x, targets)
        return scores

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: Forms | None = None) -> tuple[Tensor, State]:
        """One token of each row, (B,): its scores, and what the next step reads."""
        x = self.embedding.vectors(ids)
        fed, t = split_state(state, ids)
        if self.clock is not None:
            x = beside(x, t, self.clock)
        logits, y = self.network.step(x, None if fed is None else fed[0][0])
        return logits, ((y,), (t + 1,))
