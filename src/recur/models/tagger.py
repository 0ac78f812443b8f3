"""Taggers of words: tokens, characters and casing as inputs, independent tags or a CRF as output.

    x_t = [embedding of token t; characters of its word; casing of its word]

The characters of a word are read by a bidirectional LSTM (Lample et al. 2016), of which the two last states are used,
or by a convolution over three characters with maxout and a maximum over the word (Ma and Hovy 2016; Goodfellow et al.
2013). A word that occurs several times in a batch is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, one_hot

from recur.data.text import UNK
from recur.data.text.tokenizers import CASINGS
from recur.errors import OptionError
from recur.models.classifiers import SequenceEncoder
from recur.models.layers import State, TokenEmbedding, append_positions, append_time, make_depth, split_state
from recur.models.options import TaggerOptions, WordTaggerOptions
from recur.nn import CRF, OutputRecurrent, Pooling, Recurrent
from recur.nn.conditioning import PARALLEL_BACKEND
from recur.nn.crf import FixedCRF, NBest, Transitions, length_mask, viterbi
from recur.nn.functional import sequence_dropout

CASING_WIDTH = 8
MAXOUT_PIECES = 2
"""Number of linear maps of a maxout unit."""


class WordFormBatch(NamedTuple):
    """The U distinct words of a batch."""

    characters: Tensor
    """Ids (U, C), padded with <pad>."""
    lengths: Tensor | None
    """(U,); None if all words have the same length."""
    casing: Tensor
    """(U,)."""
    which: Tensor
    """(B, T): index of the word of each token."""


class WordBatch(NamedTuple):
    """Batch of sentences."""

    ids: Tensor
    """Token ids (B, T)."""
    lengths: Tensor | None
    """Number of tokens of each sentence (B,); None if all are equal."""
    ends: Tensor | None
    """Index of the last token of each word (B, W), 0 as padding; None if every token is a word."""
    counts: Tensor
    """Number of words of each sentence (B,)."""
    forms: WordFormBatch | None = None
    features: Tensor | None = None
    """(B, W, F): numbers of the features of words, for a linear model that the network is blended with."""

    @classmethod
    def of_tokens(cls, ids: Tensor, lengths: Tensor | None = None) -> WordBatch:
        """Return a batch in which every token is a word."""
        return cls(ids, lengths, None, torch.full(ids.shape[:1], ids.shape[1]) if lengths is None else lengths)

    def to(self, device: torch.device) -> WordBatch:
        """Move the tensors to a device; lengths and counts stay on the host, which reads them."""
        forms = self.forms and self.forms._replace(
            characters=self.forms.characters.to(device),
            casing=self.forms.casing.to(device),
            which=self.forms.which.to(device),
        )
        ends = self.ends if self.ends is None else self.ends.to(device)
        features = self.features if self.features is None else self.features.to(device)
        return self._replace(ids=self.ids.to(device), ends=ends, forms=forms, features=features)


class WordForms(nn.Module):
    """Network from the characters and casing of words to vectors (U, width), for an alphabet of K characters."""

    def __init__(self, K: int, options: WordTaggerOptions) -> None:
        super().__init__()
        o, size = options, options.character_width
        self.kind = o.characters
        self.width = (size if o.characters != "none" else 0) + (CASING_WIDTH if o.casing else 0)
        self.casing = TokenEmbedding(len(CASINGS), CASING_WIDTH, "normal:0.5") if o.casing else None
        if o.characters != "none":
            self.embedding = TokenEmbedding(K, o.character_embedding_size, o.embedding_init)
        if o.characters == "lstm":
            self.recurrent = Recurrent("lstm", o.character_embedding_size, -(-size // 2), direction="both")
            self.pooling = Pooling("last", 2 * (-(-size // 2)), direction="both")
        if o.characters == "cnn":
            self.convolution = nn.Conv1d(o.character_embedding_size, MAXOUT_PIECES * size, 3, padding=1)

    def forward(self, forms: WordFormBatch) -> Tensor:
        parts = []
        if self.kind == "lstm":
            states = self.recurrent(self.embedding(forms.characters), lengths=forms.lengths).outputs
            parts.append(self.pooling(states, forms.lengths))
        if self.kind == "cnn":
            parts.append(self._convolved(forms))
        if self.casing is not None:
            parts.append(self.casing(forms.casing))
        return torch.cat(parts, 1)

    def _convolved(self, forms: WordFormBatch) -> Tensor:
        x, there = self.embedding(forms.characters), None
        if forms.lengths is not None:
            there = torch.arange(forms.characters.shape[1]) < forms.lengths[:, None]
            there = there.to(forms.characters.device)[..., None]
            x = x * there  # what stands behind a word is nothing
        found: Tensor = self.convolution(x.transpose(1, 2)).unflatten(1, (-1, MAXOUT_PIECES)).amax(2)
        return (found if there is None else found.masked_fill(~there.transpose(1, 2), -torch.inf)).amax(2)


UNSEEN_TAG = -1
"""Value in place of a tag: a tag that is not in the training set, or padding."""


class WordSum(NamedTuple):
    """Sum over words, and the number of words."""

    total: Tensor
    words: int


class IndependentTags(nn.Module):
    """Independent tags with the interface of `CRF`: scores x (B, W, K) and counts (B,) of words."""

    def log_likelihood(self, x: Tensor, counts: Tensor, tags: Tensor) -> Tensor:
        chosen = x.log_softmax(-1).gather(2, tags.clamp(min=0)[..., None])[..., 0]
        return chosen.masked_fill(~length_mask(x, counts), 0).sum(1)

    def marginals(self, x: Tensor, counts: Tensor) -> Tensor:
        return x.softmax(-1).masked_fill(~length_mask(x, counts)[..., None], 0)

    def nbest(self, x: Tensor, counts: Tensor, n: int = 1) -> NBest:
        return viterbi(x.double().log_softmax(-1), counts, Transitions.nothing(x), n)


class TagScorer(nn.Module):
    """Loss and decoding that all taggers share, given the scores of words."""

    class_weights: Tensor | None
    tags: IndependentTags | CRF

    @property
    def decoder(self) -> IndependentTags | CRF:
        """Decoder of `scores`: of the network's tags, or of a blend's."""
        return self.tags

    def scores(self, words: WordBatch) -> Tensor:
        """Return the scores (B, W, classes) that are decoded: those of the network, or of a blend."""
        found: Tensor = self(words)
        return found

    def loss(self, scores: Tensor, counts: Tensor, tags: Tensor) -> Tensor:
        """Return the mean loss over words, weighted by tag if there are weights."""
        if self.class_weights is not None:
            return cross_entropy(scores.flatten(0, 1), tags.flatten(), self.class_weights, ignore_index=UNSEEN_TAG)
        total, words = self.negative_log_likelihood(scores, counts, tags)
        return total / max(words, 1)

    def negative_log_likelihood(
        self, scores: Tensor, counts: Tensor, tags: Tensor, decoder: IndependentTags | CRF | None = None
    ) -> WordSum:
        """Return the sum over the sentences all of whose tags are in the training set; of the network, or a blend."""
        known = ((tags != UNSEEN_TAG) | ~length_mask(scores, counts)).all(1).cpu()
        if not known.all():
            if not known.any():
                return WordSum(scores.sum() * 0, 0)
            scores, counts, tags = scores[known], counts[known], tags[known]
        return WordSum(-(decoder or self.tags).log_likelihood(scores, counts, tags).sum(), int(counts.sum()))


class Tagger(TagScorer, SequenceEncoder):
    """Tagger with scores (B, W, classes), each word independent."""

    options: TaggerOptions

    def __init__(
        self, K: int, classes: int, options: TaggerOptions, class_weights: Tensor | None = None, *, beside: int = 0
    ) -> None:
        super().__init__(K, classes, options, class_weights, beside=beside)
        self.tags = IndependentTags()

    def forward(self, words: WordBatch, tags: Tensor | None = None) -> Tensor:
        """Return scores; `tags` (B, W) are ignored, because the states do not read them."""
        return self._read_out(self.read(words.ids, words.lengths), words.ends)

    def _read_out(self, states: Tensor, ends: Tensor | None) -> Tensor:
        o = self.options
        if ends is not None:
            states = states.gather(1, ends[..., None].expand(-1, -1, states.shape[2]))
        scores: Tensor = self.output(
            sequence_dropout(states, o.dropout_output, training=self.training, variational=o.variational)
        )
        return scores

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: WordFormBatch | None = None) -> tuple[Tensor, State]:
        """Read one token per row (B,). Return its scores and the state."""
        h, state = self.read_step(ids, state)
        return self.output(h), state


class WordTagger(Tagger):
    """Tagger that can read characters and casing of words, and tag with a CRF."""

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
        allowed: Transitions | None = None,
    ) -> None:
        """Create the tagger.

        K             size of the vocabulary
        characters    size of the alphabet
        frequencies   (K,): training frequency of each token, for the option `unknown`
        allowed       allowed transitions between tags of the CRF
        """
        o, with_forms = options, options.casing or options.characters != "none"
        forms = WordForms(characters, o) if with_forms else None
        super().__init__(K, classes, o, class_weights, beside=0 if forms is None else forms.width)
        self.forms = forms
        if o.crf:
            self.tags = CRF(classes, allowed)
        self.register_buffer("frequencies", frequencies if o.unknown else None, persistent=False)

    def forward(self, words: WordBatch, tags: Tensor | None = None) -> Tensor:
        states = self.read(self._forget(words.ids), words.lengths, self._look(words.forms))
        return self._read_out(states, words.ends)

    def _look(self, forms: WordFormBatch | None) -> Tensor | None:
        if self.forms is None or forms is None:
            return None
        o = self.options
        vectors = embedding(forms.which, self.forms(forms))  # (B, T, width)
        return sequence_dropout(vectors, o.dropout_input, training=self.training, variational=o.variational)

    def _forget(self, ids: Tensor) -> Tensor:
        """Replace rare words by <unk> while training, so that <unk> is learned (Kiperwasser and Goldberg 2016).

        The probability is α / (α + frequency of the word).
        """
        if not self.training or self.frequencies is None:
            return ids
        alpha = self.options.unknown
        chance = alpha / (alpha + self.frequencies[ids])
        return ids.masked_fill(torch.rand_like(chance) < chance, UNK)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: WordFormBatch | None = None) -> tuple[Tensor, State]:
        """Read one token per row (B,). Return its scores and the state. `forms.which` is (B, 1)."""
        looks = self._look(forms)
        h, state = self.read_step(ids, state, None if looks is None else looks[:, 0])
        return self.output(h), state


class OutputTagger(TagScorer):
    """Tagger whose steps read the previous class, not a hidden state: h_t = tanh(U x_t + W y_{t−1} + b).

    With target classes all steps are computed in parallel; without, each step reads the most likely class of the step
    before. Every step has a class.
    """

    def __init__(self, K: int, classes: int, options: TaggerOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        if o.direction != "forward":
            raise OptionError(f"--recurrence output reads forward, got --direction {o.direction}")
        self.embedding = TokenEmbedding(
            K, o.embedding_size, o.embedding_init, drop=o.dropout_input, drop_tokens=o.dropout_embedding
        )
        self.clock = o.clock
        width = self.embedding.width + (self.clock is not None)
        self.network = OutputRecurrent(width, o.hidden_size, classes, depth=make_depth(o), dropout=o.dropout_output)
        self.backend = PARALLEL_BACKEND
        self.tags = IndependentTags()
        self.register_buffer("class_weights", class_weights, persistent=False)

    @property
    def output(self) -> nn.Linear:
        return self.network.output

    def forward(self, words: WordBatch, tags: Tensor | None = None) -> Tensor:
        """Return scores (B, T, classes); with `tags` (B, T), by teacher forcing."""
        x = append_positions(self.embedding(words.ids), self.clock)
        targets = None
        if tags is not None:
            targets = one_hot(tags.clamp(min=0), self.network.output_size).to(x)
        scores: Tensor = self.network(x, targets)
        return scores

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None, forms: WordFormBatch | None = None) -> tuple[Tensor, State]:
        """Read one token per row (B,). Return its scores and the state."""
        x = self.embedding.vectors(ids)
        fed, t = split_state(state, ids)
        if self.clock is not None:
            x = append_time(x, t, self.clock)
        logits, y = self.network.step(x, None if fed is None else fed[0][0])
        return logits, ((y,), (t + 1,))


class TaggerEnsemble(TagScorer):
    """Ensemble of taggers of the same tokens and tags, all with a CRF or all without: mean scores, mean CRF weights."""

    def __init__(self, members: Sequence[WordTagger | OutputTagger]) -> None:
        super().__init__()
        if any(isinstance(member, OutputTagger) for member in members):
            raise OptionError("taggers with --recurrence output cannot form an ensemble")
        fields = [field for member in members if isinstance(field := member.decoder, CRF)]
        if len(fields) not in (0, len(members)):
            raise OptionError("an ensemble needs taggers that all have a CRF, or all have none")
        self.members, self.class_weights = nn.ModuleList(members), None
        self.tags = IndependentTags()
        if fields:
            parts = zip(*(field.moves(constrained=False) for field in fields), strict=True)
            self.tags = FixedCRF(Transitions(*(torch.stack(part).mean(0) for part in parts)), fields[0].allowed)

    @property
    def output(self) -> nn.Linear:
        first = self.members[0].output
        assert isinstance(first, nn.Linear)
        return first

    def forward(self, words: WordBatch, tags: Tensor | None = None) -> Tensor:
        """Return scores (B, W, classes)."""
        return torch.stack([cast(TagScorer, member).scores(words) for member in self.members]).mean(0)
