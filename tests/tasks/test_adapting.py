"""A cache, and dynamic evaluation, against the papers' equations in plain loops."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.errors import OptionError
from recur.models import LanguageModel
from recur.tasks import make_options, open_predictor
from recur.tasks.language import adapting
from recur.tasks.language.adapting import Cache, Dynamic, TextLosses
from recur.training import train
from tests.support import close

K = 9


@pytest.fixture
def model() -> LanguageModel:
    fields: dict[str, Any] = {"cell": "lstm", "hidden_size": 7, "embedding_size": 5, "tie_weights": True}
    return LanguageModel(K, make_options("language", fields)).double().eval()  # type: ignore[arg-type]


@pytest.fixture
def text() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, K, 61))


def test_cache(text: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token, with a list of what came before; blocks of several tokens give the same."""
    monkeypatch.setattr(adapting, "BLOCK", 16)
    h, y = torch.randn(60, 4), text[1:]
    logp = torch.randn(60, K).double().log_softmax(-1).gather(1, y[:, None])[:, 0]
    size, theta, share = 11, 0.6, 0.25
    expected, kept = [], list[tuple[Any, int]]()
    for t in range(60):
        p = math.exp(logp[t])
        if kept:
            weights = np.exp([theta * float(h[t] @ old) for old, _ in kept])
            cached = sum(w for w, (_, token) in zip(weights, kept, strict=True) if token == y[t]) / weights.sum()
            p = (1 - share) * p + share * cached
        expected.append(math.log(p))
        kept = [*kept, (h[t], int(y[t]))][-size:]
    found = adapting.with_cache(TextLosses(h, logp), y, Cache(size, theta, share))
    assert found.numpy() == pytest.approx(np.array(expected), rel=1e-5)


def test_the_cache_that_is_chosen_is_the_best_tried() -> None:
    y = torch.arange(200) % 4
    h = torch.nn.functional.one_hot(y, 4).float()  # the state says which token comes, and the softmax does not know it
    read = TextLosses(h, torch.full((200,), math.log(1 / K), dtype=torch.float64))
    chosen = adapting.choose_cache(read, y, 50)
    assert (chosen.theta, chosen.share) == (max(adapting.SHARPNESS), max(adapting.SHARES))


def test_dynamic_evaluation(model: LanguageModel, text: torch.Tensor) -> None:
    x, y, how = text[:-1], text[1:], Dynamic(0.02, 0.3)
    sizes = adapting.gradient_sizes(model, text, segment=4)
    before = copy.deepcopy(model.state_dict())
    found = adapting.read_dynamic(model, x, y, how, sizes, segment=4)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the weights are put back"

    named = list(model.named_parameters())
    mean = float(torch.cat([s.flatten() for s in sizes]).mean())
    logp, state = [], None
    for begin in range(0, len(x), 4):
        out = model(x[None, begin : begin + 4], state)
        losses = cross_entropy(out.logits[0], y[begin : begin + 4], reduction="none")
        logp += [-loss for loss in losses.detach()]
        state = model.detached(out.state)
        gradients = torch.autograd.grad(losses.mean(), [p for _, p in named])
        with torch.no_grad():
            for (name, p), g, s in zip(named, gradients, sizes, strict=True):
                r = torch.minimum(s / mean, torch.tensor(1 / how.decay, dtype=torch.float64))
                p += how.decay * r * (before[name] - p) - how.rate * g / (s + adapting.EPSILON)
    close(found.logp, torch.stack(logp))
    model.load_state_dict(before)
    static = adapting.read_static(model, x, y, window=7)
    close(static.logp, -cross_entropy(model(x[None]).logits[0], y, reduction="none").detach())
    assert float(found.logp.mean()) != pytest.approx(float(static.logp.mean()), abs=1e-6)


def test_sizes_of_gradients(model: LanguageModel, text: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "LANES", 2)
    monkeypatch.setattr(adapting, "BATCHES", 3)
    rows, state, squares = text[:60].view(2, 30), None, []
    for begin in (0, 5, 10):
        out = model(rows[:, begin : begin + 5], state)
        state = model.detached(out.state)
        loss = cross_entropy(out.logits.flatten(0, 1), rows[:, begin + 1 : begin + 6].flatten())
        squares.append([g.square() for g in torch.autograd.grad(loss, list(model.parameters()))])
    for found, *each in zip(adapting.gradient_sizes(model, text, 5), *squares, strict=True):
        close(found, (sum(each) / 3).sqrt())


def test_as_options_of_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "RATES", (0.002,))
    monkeypatch.setattr(adapting, "BATCHES", 5)
    book = tmp_path / "book.txt"
    book.write_text("a state is a word that the network keeps\n" * 60)
    fields = {"texts": str(book), "hidden_size": 8, "steps": 5, "threads": 1, "baseline": False}
    train(make_options("language", fields), tmp_path / "run")
    model = open_predictor([tmp_path / "run"], "cpu")
    row = model.evaluate(ngrams=False, cache=20, dynamic=True)
    names = [one["model"] for one in row["beside"]]
    assert [name.split("(")[0] for name in names] == [
        "… with a cache of 20 ",
        "… with dynamic evaluation ",
        "… with both, a cache of 20 ",
    ]
    assert all(one["tokens"] == row["tokens"] and one["perplexity"] > 1 for one in row["beside"])
    assert row["beside"][0]["perplexity"] < row["perplexity"]
    book.unlink()
    with pytest.raises(OptionError, match="settings of the training"):
        model.evaluate([str(Path(__file__))], ngrams=False, cache=20)
