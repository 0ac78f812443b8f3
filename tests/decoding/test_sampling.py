"""Choosing tokens: each rule by its definition, beam search against all there is."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch

from recur.data.text import BOS, PAD, UNK
from recur.decoding import SamplingOptions, beam_continuations, generate, read_prompt
from recur.errors import OptionError
from recur.models import LanguageModel
from recur.models.options import LanguageModelOptions

P = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)


def kept(**options: Any) -> list[float]:
    return [round(p, 6) for p in SamplingOptions(**options).probabilities(P.log()).tolist()]


def test_each_rule_by_its_definition() -> None:
    assert kept() == [0.4, 0.3, 0.2, 0.1]
    assert kept(top_k=2) == [round(4 / 7, 6), round(3 / 7, 6), 0, 0]
    assert kept(top_k=1) == [1, 0, 0, 0]
    assert kept(top_p=0.7) == [round(4 / 7, 6), round(3 / 7, 6), 0, 0]
    assert kept(top_p=0.71) == [round(4 / 9, 6), round(3 / 9, 6), round(2 / 9, 6), 0]
    assert kept(top_p=1e-9) == [1, 0, 0, 0]
    assert kept(min_p=0.5) == [round(4 / 9, 6), round(3 / 9, 6), round(2 / 9, 6), 0]
    squared = P.square() / P.square().sum()
    assert kept(temperature=0.5) == [round(p, 6) for p in squared.tolist()]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0; for the likeliest token take top_k=1"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"top_k": -1}, "top_k must be a whole number ≥ 0"),
        ({"top_p": 0.0}, "top_p must lie in"),
        ({"top_p": 1.1}, "top_p must lie in"),
        ({"min_p": 2.0}, "min_p must lie in"),
        ({"temperature": "1"}, "temperature must be above 0, got '1'"),
        ({"top_k": 2.5}, "top_k must be a whole number ≥ 0, got 2.5"),
        ({"top_p": None}, "top_p must lie in"),
    ],
)
def test_rules_out_of_range(options: dict[str, float], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SamplingOptions(**options)  # type: ignore[arg-type]


@pytest.fixture
def model() -> LanguageModel:
    net = LanguageModel(7, LanguageModelOptions(cell="gru", hidden_size=6)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(3)
    return net


def test_draws_follow_the_distribution_and_never_what_cannot_be_written(model: LanguageModel) -> None:
    (tokens,) = generate(model, [4], 1, SamplingOptions(), samples=20_000, seed=1)
    logits, _ = read_prompt(model, [4])
    logits[:, [UNK, PAD, BOS]] = -torch.inf
    p = logits.softmax(-1)[0]
    counts = Counter(tokens)
    assert counts[UNK] == counts[PAD] == counts[BOS] == 0
    for k in range(7):
        assert abs(counts[k] / 20_000 - p[k].item()) < 0.015


def test_a_sample_is_what_one_step_after_the_other_gives(model: LanguageModel) -> None:
    columns = list(generate(model, [4, 5], 12, SamplingOptions(top_k=1), samples=2))
    state, lead = None, [4, 5]
    for column in columns:
        logits, state = read_prompt(model, lead, state)
        logits[:, [UNK, PAD, BOS]] = -torch.inf
        lead = [int(logits.argmax())]
        assert column == lead * 2
    assert list(generate(model, [4], 5, SamplingOptions(), seed=3)) == list(
        generate(model, [4], 5, SamplingOptions(), seed=3)
    )
    assert list(generate(model, [4], 0, SamplingOptions())) == []


def test_a_wide_beam_finds_the_likeliest_of_all(model: LanguageModel) -> None:
    length, K = 4, 7
    scores = {}
    for ids in itertools.product([k for k in range(K) if k not in (UNK, PAD, BOS)], repeat=length):
        total, state, lead = 0.0, None, [4]
        for token in ids:
            logits, state = read_prompt(model, lead, state)
            logits[:, [UNK, PAD, BOS]] = -torch.inf
            total += float(logits.log_softmax(-1)[0, token])
            lead = [token]
        scores[ids] = total
    best = sorted(scores, key=lambda ids: -scores[ids])[:3]
    found = beam_continuations(model, [4], length, 4**length)[:3]
    assert [tuple(ids) for ids, _ in found] == best
    assert [score for _, score in found] == pytest.approx([scores[ids] for ids in best])
    assert len(beam_continuations(model, [4], 3, 2)) == 2


@pytest.mark.parametrize("width", [1, 2, 3, 20])
def test_a_narrow_beam_keeps_the_best_at_every_step(model: LanguageModel, width: int) -> None:
    """Beside a beam of Python lists, each hypothesis read anew. <eos> is a token as any other: no text ends early."""
    kept: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(5):
        longer = []
        for score, ids in kept:
            logits, _ = read_prompt(model, [4, 5, *ids])
            logits[:, [UNK, PAD, BOS]] = -torch.inf
            logp = logits.log_softmax(-1)[0].tolist()
            longer += [(score + logp[k], [*ids, k]) for k in range(7) if k not in (UNK, PAD, BOS)]
        kept = sorted(longer, reverse=True)[:width]
    found = beam_continuations(model, [4, 5], 5, width)
    assert [ids for ids, _ in found] == [ids for _, ids in kept]
    assert [score for _, score in found] == pytest.approx([score for score, _ in kept])
    assert beam_continuations(model, [4, 5], 0, width) == [([], 0.0)]


def test_lengths_and_widths_out_of_range(model: LanguageModel) -> None:
    for call in (
        lambda: list(generate(model, [4], -1, SamplingOptions())),
        lambda: beam_continuations(model, [4], -1, 2),
    ):
        with pytest.raises(OptionError, match="length must be a whole number ≥ 0"):
            call()
    with pytest.raises(OptionError, match="beam must be a whole number ≥ 1"):
        beam_continuations(model, [4], 1, 0)
    with pytest.raises(OptionError, match="samples must be a whole number ≥ 1"):
        list(generate(model, [4], 1, SamplingOptions(), samples=0))
    with pytest.raises(OptionError, match="seed must be a whole number in 0 … 2⁶³ − 1"):
        list(generate(model, [4], 1, SamplingOptions(), seed=2**64))
