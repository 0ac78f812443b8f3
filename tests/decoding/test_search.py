"""Greedy, drawn and searched sequences beside all sequences there are."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.decoding import DecoderEnsemble, SamplingOptions, beam_search, greedy_decode, likelihood, sample_decode
from recur.errors import OptionError
from recur.models import Seq2Seq
from recur.models.options import EncoderDecoderOptions

K, LONGEST = 7, 4  # three symbols to write: 4, 5 and 6
STOPS = ["eos", "bernoulli", "length"]


def make(stop: str = "eos", longest: int = LONGEST, seed: int = 0) -> Seq2Seq:
    torch.manual_seed(seed)
    model = (
        Seq2Seq(K, K, EncoderDecoderOptions(hidden_size=5, embedding_size=4, max_length=longest, stop=stop))
        .double()
        .eval()
    )
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.7)  # far from uniform, so that a search can go wrong
    return model


SOURCE, S = torch.tensor([[4, 5, 6], [6, 1, 1]]), torch.tensor([3, 1])


@torch.no_grad()
def everything(model: Any, row: int) -> dict[tuple[int, ...], float]:
    """log P of every sequence of 0 … LONGEST symbols, one forward pass of training for each."""
    found = {}
    low = 1 if model.decoder.options.stop == "length" else 0
    for n in range(low, LONGEST + 1):
        for ids in itertools.product((4, 5, 6), repeat=n):
            target, t = torch.tensor([ids or (1,)]), torch.tensor([n])
            x, s = SOURCE[row : row + 1, : S[row]], S[row : row + 1]
            found[ids] = -float(model.decoder.loss(model(x, s, target, t), target, t)[0])
    return found


def ranked(found: dict[tuple[int, ...], float], penalty: float = 0.0) -> list[tuple[list[int], float]]:
    by = sorted(found, key=lambda ids: -found[ids] / ((5 + len(ids) + 1) / 6) ** penalty)
    return [(list(ids), found[ids]) for ids in by]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_a_beam_wide_enough_is_exhaustive(stop: str, penalty: float) -> None:
    model = make(stop)
    found = beam_search(model.writer(SOURCE, S), 3**LONGEST, nbest=20, penalty=penalty)
    for row in range(2):
        best = ranked(everything(model, row), penalty)[:20]
        assert [w.ids for w in found[row]] == [ids for ids, _ in best]
        assert [w.score for w in found[row]] == pytest.approx([score for _, score in best], abs=1e-9)


@torch.no_grad()
def left_out(models: list[Seq2Seq], row: int, ids: tuple[int, ...]) -> float:
    """Σ_s log min(Σ_t a_ts, 1) by a forward pass of training: over all symbols and, where it is predicted, the end."""
    target, t = torch.tensor([ids or (1,)]), torch.tensor([len(ids)])
    x, s = SOURCE[row : row + 1, : S[row]], S[row : row + 1]
    steps = len(ids) + (models[0].decoder.options.stop != "length")
    weights = [model(x, s, target, t).weights for model in models]
    looked = [sum(float(w[0, k, place]) for w in weights for k in range(steps)) for place in range(int(s))]
    return sum(math.log(min(total / len(models), 1.0)) for total in looked)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(("penalty", "coverage"), [(0.0, 1.0), (0.6, 2.0), (1.0, 5.0)])
def test_coverage_ranks_by_what_was_looked_at(stop: str, penalty: float, coverage: float) -> None:
    model = make(stop)
    found = beam_search(model.writer(SOURCE, S), 3**LONGEST, 20, penalty, coverage)
    moved = 0
    for row in range(2):
        whole = everything(model, row)
        ranks = {
            ids: logp / ((6 + len(ids)) / 6) ** penalty + coverage * left_out([model], row, ids)
            for ids, logp in whole.items()
        }
        best = sorted(ranks, key=lambda ids: -ranks[ids])[:20]
        assert [tuple(w.ids) for w in found[row]] == best
        assert [w.score for w in found[row]] == pytest.approx([whole[ids] for ids in best], abs=1e-9)
        moved += [list(ids) for ids in best] != [ids for ids, _ in ranked(whole, penalty)[:20]]
    assert moved  # … which is another order than without


def test_coverage_of_several_is_that_of_their_mean_attention() -> None:
    models = [make(seed=k) for k in range(2)]
    ensemble = DecoderEnsemble([model.writer(SOURCE, S) for model in models])
    (first, second) = beam_search(ensemble, 3**LONGEST, 81, coverage=3.0)
    for row, found in enumerate((first, second)):
        ranks = [w.score + 3.0 * left_out(models, row, tuple(w.ids)) for w in found]
        assert ranks == sorted(ranks, reverse=True)
        assert len({tuple(w.ids) for w in found}) == 81


def test_coverage_needs_attention() -> None:
    with pytest.raises(OptionError, match="coverage needs attention"):
        beam_search(Endless(), 3, coverage=0.5)


@pytest.mark.parametrize("stop", STOPS)
def test_a_narrow_beam_says_the_truth_and_a_wider_one_finds_no_worse(stop: str) -> None:
    model = make(stop)
    whole = [everything(model, row) for row in range(2)]
    best = [-torch.inf, -torch.inf]
    for width in (1, 2, 4, 8, 81):
        for row, found in enumerate(beam_search(model.writer(SOURCE, S), width)):
            assert found[0].score == pytest.approx(whole[row][tuple(found[0].ids)], abs=1e-9)
            best[row] = max(best[row], found[0].score)
    assert best == pytest.approx([max(found.values()) for found in whole], abs=1e-9)


@pytest.mark.parametrize("stop", STOPS)
def test_greedy_takes_the_likeliest_at_each_step(stop: str) -> None:
    model = make(stop)
    for row, made in enumerate(greedy_decode(model.writer(SOURCE, S))):
        writer = model.writer(SOURCE[row : row + 1, : S[row]], S[row : row + 1])
        left, total = None, 0.0
        if stop == "length":
            best = writer.lengths().max(-1)  # type: ignore[union-attr]
            left, total = best.indices, best.values.item()
            assert int(left) == len(made.ids)
        carried, token = writer.begin(1, left), torch.tensor([2])
        for expected in made.ids if made.cut else [*made.ids, 3]:
            logp, carried = writer.step(token, carried)
            logp[:, :3] = -torch.inf
            assert int(logp.argmax()) == expected
            total += logp[0, expected].item()
            token = torch.tensor([expected])
        assert made.score == pytest.approx(total, abs=1e-9)
        if not made.cut:
            assert made.score == pytest.approx(everything(model, row)[tuple(made.ids)], abs=1e-9)


@pytest.mark.parametrize("stop", STOPS)
def test_drawn_ones_come_as_often_as_they_are_likely(stop: str) -> None:
    """What is never written is not drawn, and its share goes to the rest at every step."""
    model, N = make(stop), 20_000

    def chance(ids: list[int]) -> float:
        writer = model.writer(SOURCE[:1], S[:1])
        table, total, left = writer.lengths(), 1.0, None
        if table is not None:
            left = torch.tensor([len(ids)])
            total = float(table[0].softmax(-1)[len(ids)])
        carried, token = writer.begin(1, left), torch.tensor([2])
        for k in [*ids, 3]:
            logp, carried = writer.step(token, carried)
            logp[:, :3] = -torch.inf
            total *= float(logp[0].softmax(-1)[k])
            token = torch.tensor([k])
        return total

    with torch.no_grad():
        drawn = sample_decode(model.writer(SOURCE, S), SamplingOptions(), N, seed=1)
        counts = Counter(tuple(w.ids) for w in drawn[0] if not w.cut)
        for ids, count in counts.most_common(8):
            p = chance(list(ids))
            assert count / N == pytest.approx(p, abs=4.5 * (p * (1 - p) / N) ** 0.5), ids
    assert drawn == sample_decode(model.writer(SOURCE, S), SamplingOptions(), N, seed=1)
    assert drawn != sample_decode(model.writer(SOURCE, S), SamplingOptions(), N, seed=2)


@torch.no_grad()
def test_several_write_as_one_by_the_mean_of_their_probabilities() -> None:
    models = [make(seed=k) for k in range(3)]
    target, t = torch.tensor([[4, 5], [6, 1]]), torch.tensor([2, 1])
    ensemble = DecoderEnsemble([model.writer(SOURCE, S) for model in models])

    def step_by_step(b: int) -> float:
        total, writers = 0.0, [model.writer(SOURCE[b : b + 1, : S[b]], S[b : b + 1]) for model in models]
        carried, token = [writer.begin(1) for writer in writers], torch.tensor([2])
        for k in [*target[b, : t[b]].tolist(), 3]:
            steps = [writer.step(token, own) for writer, own in zip(writers, carried, strict=True)]
            total += float(torch.stack([logp[0, k].exp() for logp, _ in steps]).mean().log())
            carried, token = [own for _, own in steps], torch.tensor([k])
        return total

    assert likelihood(ensemble, target, t).tolist() == pytest.approx([step_by_step(0), step_by_step(1)], abs=1e-9)
    one = make(seed=1)
    same = DecoderEnsemble([one.writer(SOURCE, S), one.writer(SOURCE, S)])
    (a, _), (b, _) = (beam_search(writer, 5) for writer in (same, one.writer(SOURCE, S)))
    assert a[0].ids == b[0].ids
    with pytest.raises(OptionError, match="the same way of stopping"):
        DecoderEnsemble([make("eos").writer(SOURCE, S), make("length").writer(SOURCE, S)])


class Endless:
    """A writer that never ends."""

    rows, K, longest, device = 2, K, 6, torch.device("cpu")

    def lengths(self) -> None:
        return None

    def begin(self, k: int, left: Tensor | None = None) -> None:
        return None

    def step(self, tokens: Tensor, carried: None) -> tuple[Tensor, None]:
        logp = torch.full((len(tokens), K), -1.0)
        logp[:, 3], logp[:, 4] = -torch.inf, -0.5
        return logp, None

    def pick(self, carried: None, index: Tensor) -> None:
        return None

    def attended(self, carried: None) -> None:
        return None


def test_what_never_ends_is_cut_and_says_so() -> None:
    for made in (
        *greedy_decode(Endless()),
        *(row[0] for row in beam_search(Endless(), 3)),
        *sample_decode(Endless(), SamplingOptions(), 1, 0)[0],
    ):
        assert made.cut
        assert len(made.ids) == 6


def test_rows_of_a_batch_are_searched_as_if_alone() -> None:
    model = make(longest=8)
    together = beam_search(model.writer(SOURCE, S), 4, nbest=3)
    for b in range(2):
        (alone,) = beam_search(model.writer(SOURCE[b : b + 1, : S[b]], S[b : b + 1]), 4, nbest=3)
        assert [w.ids for w in together[b]] == [w.ids for w in alone]
        assert [w.score for w in together[b]] == pytest.approx([w.score for w in alone], abs=1e-9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"width": 0}, "beam must be a whole number ≥ 1"),
        ({"width": 2, "nbest": 3}, "nbest must lie in 1 … 2"),
        ({"width": 2, "nbest": 0}, "nbest must be a whole number ≥ 1"),
        ({"width": 2, "penalty": -1.0}, "length_penalty must not be negative"),
        ({"width": 2, "coverage": -1.0}, "coverage must not be negative"),
    ],
)
def test_out_of_range(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        beam_search(make().writer(SOURCE, S), **options)
    with pytest.raises(OptionError, match="samples must be a whole number ≥ 1"):
        sample_decode(make().writer(SOURCE, S), SamplingOptions(), 0)
