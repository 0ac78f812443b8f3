"""Taggers: against torch.nn with the same weights, word by word, streamed, and with tags that were never seen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from recur.errors import OptionError
from recur.models import OutputTagger, WordBatch, WordTagger
from recur.models.options import WordTaggerOptions
from recur.models.tagger import UNSEEN_TAG, TaggerEnsemble, WordFormBatch
from tests.support import close

K, CLASSES, ALPHABET = 9, 3, 11
IDS = torch.tensor([[1, 4, 2, 6, 5], [3, 3, 1, 0, 0]])
LENGTHS = torch.tensor([5, 3])
WORDS = WordBatch.of_tokens(IDS, LENGTHS)
SPELLED, SIZES = torch.tensor([[5, 6, 7, 8], [9, 1, 1, 1], [4, 10, 1, 1]]), torch.tensor([4, 1, 2])
FORMS = WordFormBatch(SPELLED, SIZES, torch.tensor([0, 3, 5]), torch.tensor([[0, 1, 2, 1, 0], [2, 2, 1, 0, 0]]))


def tagger(**fields: Any) -> WordTagger:
    torch.manual_seed(0)
    given = {
        "cell": "lstm",
        "hidden_size": 6,
        "num_layers": 2,
        "embedding_size": 4,
        "character_embedding_size": 5,
        **fields,
    }
    if given.get("characters", "none") == "none":
        given.pop("character_embedding_size")
    counts = torch.arange(K, dtype=torch.float64)
    return WordTagger(K, CLASSES, WordTaggerOptions(**given), characters=ALPHABET, frequencies=counts).double().eval()


@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("width", [0, 4])
def test_a_tagger_is_torchs_lstm_and_a_linear_layer(direction: str, width: int) -> None:
    model = tagger(direction=direction, embedding_size=width)
    lstm = nn.LSTM(width or K, 6, 2, batch_first=True, bidirectional=direction == "both").double()
    lstm.load_state_dict(model.recurrent.state_dict())
    ends, counts = torch.tensor([[0, 2, 4], [0, 2, 0]]), torch.tensor([3, 2])  # words of one or two tokens
    found = model(WordBatch(IDS, LENGTHS, ends, counts))
    for row, step, k in [(0, 0, 0), (0, 2, 1), (0, 4, 2), (1, 0, 0), (1, 2, 1)]:
        ids = IDS[row, : LENGTHS[row]]
        x = one_hot(ids, K).double() if not width else model.embedding.vectors(ids)
        close(found[row, k].detach(), model.output(lstm(x[None])[0][0, step]).detach())


def looked_at(model: WordTagger, kind: str) -> Tensor:
    """The vectors of the three words of FORMS, each for itself, by torch.nn."""
    forms = model.forms
    assert forms is not None
    assert forms.casing is not None
    assert forms.casing.weight is not None
    vectors = []
    for k in range(3):
        x = forms.embedding.vectors(SPELLED[k, : SIZES[k]])
        if kind == "lstm":
            lstm = nn.LSTM(5, 4, batch_first=True, bidirectional=True).double()
            lstm.load_state_dict(forms.recurrent.state_dict())
            characters = lstm(x[None])[1][0].flatten()
        else:
            padded = torch.cat([torch.zeros(1, 5), x, torch.zeros(1, 5)]).double()
            weight, bias = forms.convolution.weight, forms.convolution.bias
            assert bias is not None
            windows = [padded[t : t + 3].t().flatten() for t in range(len(x))]
            maps = torch.stack([weight.flatten(1) @ window + bias for window in windows])
            characters = maps.view(len(x), 8, 2).amax((0, 2))
        vectors.append(torch.cat([characters, forms.casing.weight[FORMS.casing[k]]]))
    return torch.stack(vectors)


@pytest.mark.parametrize("kind", ["lstm", "cnn"])
def test_words_are_read_by_their_characters(kind: str) -> None:
    model = tagger(characters=kind, casing=True, character_width=8, direction="both", num_layers=1)
    assert model.forms is not None
    close(model.forms(FORMS).detach(), looked_at(model, kind).detach())
    more = looked_at(model, kind)[FORMS.which]
    lstm = nn.LSTM(4 + 16, 6, batch_first=True, bidirectional=True).double()
    lstm.load_state_dict(model.recurrent.state_dict())
    found = model(WORDS._replace(forms=FORMS))
    for row, length in enumerate(LENGTHS.tolist()):
        x = torch.cat([model.embedding.vectors(IDS[row, :length]), more[row, :length]], 1)
        close(found[row, :length].detach(), model.output(lstm(x[None])[0][0]).detach())


@pytest.mark.parametrize("characters", ["none", "lstm"])
def test_one_direction_can_be_streamed(characters: str) -> None:
    model, state = tagger(characters=characters), None
    forms = FORMS if characters == "lstm" else None
    whole = model(WORDS._replace(forms=forms))
    for t in range(5):
        one = forms and forms._replace(which=forms.which[:1, t : t + 1])
        scores, state = model.step(IDS[:1, t], state, one)
        close(scores, whole[:1, t].detach())
    with pytest.raises(OptionError, match="one step at a time needs direction='forward'"):
        tagger(direction="both").step(IDS[:, 0])


def test_rare_words_are_unknown_now_and_then() -> None:
    model = tagger(unknown=2.0)
    assert model._forget(IDS).tolist() == IDS.tolist(), "in use they are what they are"
    model.train()
    ids = torch.arange(K).repeat(20_000, 1)
    share = (model._forget(ids) == 0).double().mean(0)
    close(share[1:], 2 / (2 + torch.arange(1, K).double()), tolerance=0.02)
    assert tagger().train()._forget(IDS) is IDS


@pytest.mark.parametrize("crf", [False, True])
def test_the_loss_is_the_mean_over_words_of_sentences_whose_tags_are_known(crf: bool) -> None:
    model = tagger(crf=crf)
    scores = model(WORDS)
    tags = torch.tensor([[0, 1, 2, 2, 1], [2, 0, 1, UNSEEN_TAG, UNSEEN_TAG]])
    if crf:
        expected = -model.tags.log_likelihood(scores, LENGTHS, tags).sum() / 8
    else:
        flat = torch.cat([scores[0], scores[1, :3]])
        expected = cross_entropy(flat, torch.tensor([0, 1, 2, 2, 1, 2, 0, 1]))
    close(model.loss(scores, LENGTHS, tags).detach(), expected.detach())
    tags[1, 1] = UNSEEN_TAG
    alone = model.negative_log_likelihood(scores, LENGTHS, tags)
    assert alone.words == 5
    close(alone.total.detach(), 5 * model.loss(scores[:1], LENGTHS[:1], tags[:1]).detach())
    tags[0, 0] = UNSEEN_TAG
    assert model.negative_log_likelihood(scores, LENGTHS, tags)[1] == 0


def test_the_loss_weighs_classes() -> None:
    weights, options = torch.tensor([1.0, 2.0, 4.0]), WordTaggerOptions(embedding_size=4, hidden_size=6)
    model, scores = WordTagger(K, CLASSES, options, weights), torch.randn(2, 5, CLASSES)
    tags = torch.tensor([[0, 1, 2, 2, 1], [2, 0, 1, UNSEEN_TAG, UNSEEN_TAG]])
    flat, known = torch.cat([scores[0], scores[1, :3]]), torch.tensor([0, 1, 2, 2, 1, 2, 0, 1])
    each = -flat.log_softmax(-1)[torch.arange(8), known]
    close(model.loss(scores, LENGTHS, tags), (each * weights[known]).sum() / weights[known].sum())


def test_tags_each_for_itself_have_the_probabilities_of_a_softmax() -> None:
    model = tagger()
    scores = model(WORDS).detach()
    chances = model.tags.marginals(scores, LENGTHS)
    close(chances[0], scores[0].softmax(-1))
    assert chances[1, 3:].abs().sum() == 0
    best = model.tags.nbest(scores, LENGTHS, 2)
    assert best.tags[0, 0].tolist() == scores[0].argmax(-1).tolist()
    close(best.scores[0, 0], scores[0].log_softmax(-1).amax(-1).sum())
    changed = (best.tags[0, 0] != best.tags[0, 1]).nonzero().tolist()
    gaps = scores[0].topk(2).values
    assert changed == [[int((gaps[:, 0] - gaps[:, 1]).argmin())]], "the second best changes the word that costs least"


def seeded(seed: int, **fields: Any) -> WordTagger:
    model = tagger(**fields)
    torch.manual_seed(seed)
    for p in model.parameters():
        nn.init.normal_(p, std=0.8)
    return model


@pytest.mark.parametrize("crf", [True, False])
@torch.no_grad()
def test_several_as_one_are_the_geometric_mean_of_what_they_say(crf: bool) -> None:
    """Over all sequences of tags: Π P_m^(1/M), normalised."""
    models = [seeded(seed, crf=crf, direction="both") for seed in range(3)]
    both = TaggerEnsemble(models)
    scores, counts = both(WORDS), WORDS.counts
    for row, n in enumerate(counts.tolist()):
        logs = {}
        for tags in itertools.product(range(CLASSES), repeat=n):
            padded = torch.tensor([[*tags, *[0] * (5 - n)]])
            one = [
                model.tags.log_likelihood(model(WORDS)[row : row + 1], counts[row : row + 1], padded)
                for model in models
            ]
            logs[tags] = float(torch.stack(one).mean())
        total = float(torch.logsumexp(torch.tensor(list(logs.values()), dtype=torch.float64), 0))
        best = sorted(logs, key=lambda tags: -logs[tags])[:6]
        found = both.tags.nbest(scores[row : row + 1], counts[row : row + 1], 6)
        assert [tuple(tags[:n]) for tags in found.tags[0].tolist()] == best
        close(found.scores[0], torch.tensor([logs[tags] - total for tags in best], dtype=torch.float64))
        chances = both.tags.marginals(scores, counts)[row]
        for t in range(n):
            expected = [sum(math.exp(logs[tags] - total) for tags in logs if tags[t] == k) for k in range(CLASSES)]
            close(chances[t], torch.tensor(expected, dtype=torch.float64))


def test_what_does_not_serve_as_one() -> None:
    with pytest.raises(OptionError, match="an ensemble needs taggers that all have a CRF"):
        TaggerEnsemble([tagger(crf=True), tagger(crf=False)])
    fed = OutputTagger(K, CLASSES, WordTaggerOptions(hidden_size=4, embedding_size=4, direction="forward"))
    with pytest.raises(OptionError, match="cannot form an ensemble"):
        TaggerEnsemble([fed, fed])
