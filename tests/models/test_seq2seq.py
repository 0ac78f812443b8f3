"""Encoder and decoder: the same numbers however they are computed, and each way of stopping learns to stop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.cells import cell_names
from recur.decoding import greedy_decode, likelihood
from recur.errors import OptionError
from recur.models import ConditionalModel, Seq2Seq
from recur.models.options import DecoderOptions, EncoderDecoderOptions
from tests.support import close

K_IN, K_OUT = 9, 8
SMALL: dict[str, Any] = {"cell": "lstm", "hidden_size": 6, "embedding_size": 5, "max_length": 12}

COPIES = [0, 0, 0, 0, 5, 4, 7, 0, 6]
"""The target symbol of every source symbol; a symbol that is in no target vocabulary is <unk>."""

WAYS: list[dict[str, Any]] = [
    {"attention": "additive", "condition": "initial", "stop": "eos"},
    {"attention": "dot", "condition": "both", "stop": "bernoulli", "num_layers": 2, "num_encoder_layers": 2},
    {"attention": "none", "condition": "input", "stop": "length"},
    {"attention": "additive", "condition": "none", "stop": "length", "direction": "backward"},
    {"attention": "dot", "condition": "initial", "stop": "eos", "input_feeding": True},
    {"attention": "additive", "condition": "both", "stop": "bernoulli", "input_feeding": True, "copy": True},
    {"attention": "dot", "condition": "none", "stop": "length", "copy": True},
    {"attention": "none", "condition": "aligned", "stop": "source"},
    {"attention": "none", "condition": "aligned", "stop": "source", "feedback": False},
]


def make(**fields: Any) -> Seq2Seq:
    return Seq2Seq(K_IN, K_OUT, EncoderDecoderOptions(**SMALL | fields), COPIES).double().eval()


def batch(stop: str = "eos") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of different lengths, padded with 1."""
    lengths = torch.tensor([4, 1, 3])
    source_lengths = lengths if stop == "source" else torch.tensor([2, 5, 3])
    source = torch.randint(4, K_IN, (3, int(source_lengths.max())))
    target = torch.randint(4, K_OUT, (3, 4))
    for ids, ends in ((source, source_lengths), (target, lengths)):
        ids[torch.arange(ids.shape[1]) >= ends[:, None]] = 1
    return source, source_lengths, target, lengths


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_batch_is_its_rows(way: dict[str, Any]) -> None:
    """What is padded counts for nothing: losses of a batch are those of its rows, each alone."""
    model, (source, s, target, t) = make(**way), batch(way["stop"])
    together = model.decoder.loss(model(source, s, target, t), target, t)
    for b in range(3):
        x, y = source[b : b + 1, : s[b]], target[b : b + 1, : t[b]]
        alone = model.decoder.loss(model(x, s[b : b + 1], y, t[b : b + 1]), y, t[b : b + 1])
        close(together[b].detach(), alone[0].detach())


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_step_by_step_with_a_teacher_is_all_at_once(way: dict[str, Any]) -> None:
    model, (source, s, target, t) = make(**way), batch(way["stop"])
    steps = target.shape[1] + 1
    forced = torch.ones(3, steps, dtype=torch.bool)
    forced[:, 0] = False  # the first step has nothing to be forced: takes the loop, and the same path
    grads = []
    for mask in (None, forced):
        loss = model.decoder.loss(model(source, s, target, t, mask), target, t).sum()
        grads.append((loss.detach(), *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)))
    for a, b in zip(*grads, strict=True):
        if a is not None and b is not None:
            close(a, b)


def test_without_a_teacher_each_step_hears_the_likeliest_symbol_before() -> None:
    model, (source, s, target, t) = make(), batch()
    never = torch.zeros(3, 5, dtype=torch.bool)
    free = model(source, s, target, t, never).symbols
    heard = free[:, :-1, 4:].argmax(-1) + 4  # no special symbol is one
    close(free.detach(), model(source, s, heard, torch.full((3,), 4)).symbols.detach())
    mixed = never.clone()
    mixed[:, 2] = True
    heard[:, 1] = target[:, 1]
    got = model(source, s, target, t, mixed).symbols[:, :3]
    close(got.detach(), model(source, s, heard, torch.full((3,), 4)).symbols[:, :3].detach())


def test_edges_from_the_output_before_or_none() -> None:
    """Aligned with a source of the same length: with feedback outputs depend on each other, without they do not."""
    source, s, target, t = batch("source")
    for feedback in (True, False):
        model = make(attention="none", condition="aligned", stop="source", feedback=feedback)
        other = target.clone()
        other[:, 0] = torch.where(target[:, 0] == 4, 5, 4)
        one, two = (model(source, s, each, t).symbols for each in (target, other))
        assert torch.equal(one[:, 0], two[:, 0]), "the first step hears nothing yet"
        assert torch.equal(one[0, 1:], two[0, 1:]) is not feedback
        third = source.clone()
        third[0, 2] = 4 if source[0, 2] != 4 else 5
        changed = (model(third, s, target, t).symbols != one).any(-1)[0]
        assert changed[2], "its own share of the source"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_writing_has_the_probabilities_of_training(way: dict[str, Any]) -> None:
    model, (source, s, target, t) = make(**way), batch(way["stop"])
    trained = -model.decoder.loss(model(source, s, target, t), target, t)
    close(likelihood(model.writer(source, s), target, t), trained.detach())


def test_the_three_losses_by_their_definitions() -> None:
    source, s, target, t = batch()
    for stop in ("eos", "bernoulli", "length"):
        model = make(stop=stop)
        scores = model(source, s, target, t)
        row = model.decoder.loss(scores, target, t)[2]  # three symbols
        p = scores.symbols[2].log_softmax(-1)
        expected = -sum(p[k, target[2, k]] for k in range(3))
        if stop == "eos":
            expected = expected - p[3, 3]
        elif stop == "bernoulli":
            ending = torch.sigmoid(scores.stop[2])
            expected = expected - (1 - ending[:3]).log().sum() - ending[3].log()
        else:
            expected = expected - scores.length[2].log_softmax(-1)[3]
        close(row.detach(), expected.detach())


def test_smoothing_is_what_torch_has() -> None:
    source, s, target, t = batch()
    model = make()
    scores = model(source, s, target, t)
    plain, smoothed = model.decoder.losses(scores, target, t, 0.3)
    close(plain.detach(), model.decoder.loss(scores, target, t).detach())
    for b in range(3):
        gold = torch.cat([target[b, : t[b]], torch.tensor([3])])
        expected = cross_entropy(scores.symbols[b, : t[b] + 1], gold, reduction="sum", label_smoothing=0.3)
        close(smoothed[b].detach(), expected.detach())


def test_input_feeding_by_its_definition() -> None:
    """g_{t−1} is a part of the input: with it in place of zeros each step alone gives what the loop gives."""
    model, (source, s, target, t) = make(cell="gru", attention="dot", input_feeding=True), batch()
    scores, d, context = model(source, s, target, t), model.decoder, model.encode(source, s)
    h, g = d.network.start(context.vector)[0].h, torch.zeros(3, SMALL["hidden_size"], dtype=torch.float64)
    p = dict(d.network.recurrent.named_parameters())
    U, W, b, c = (
        next(v for n, v in p.items() if n.startswith(k)) for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    for k in range(5):
        x = torch.cat([d.embedding.vectors(target[:, k - 1] if k else torch.full((3,), 2)), g], dim=-1)
        (xr, xz, xn), (hr, hz, hn) = (x @ U.T + b).chunk(3, -1), (h @ W.T + c).chunk(3, -1)
        z = torch.sigmoid(xz + hz)
        h = (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h
        for row in range(3):
            m = context.memory[row, : s[row]]
            a = (d.attention.query(h[row]) @ d.attention.key(m).T / SMALL["hidden_size"] ** 0.5).softmax(-1)
            close(scores.weights[row, k, : s[row]].detach(), a.detach())
        found = (scores.weights[:, k : k + 1] @ context.memory)[:, 0]
        g = torch.tanh(d.combine(torch.cat([h, found], dim=-1)))
        close(scores.symbols[:, k].detach(), d.symbols(g).detach())


def test_copying_by_its_definition() -> None:
    model, (source, s, target, t) = make(attention="additive", copy=True), batch()
    scores, d, context = model(source, s, target, t), model.decoder, model.encode(source, s)
    h, _, _ = d.network(d.inputs(d._before(target), None), context.vector)
    g, weights = d.attend(h, context, d.keys(context))
    written, p = d.symbols(g).softmax(-1), torch.sigmoid(d.written(g))
    for b in range(3):
        for k in range(5):
            expected = p[b, k] * written[b, k]
            for place in range(int(s[b])):
                expected[COPIES[source[b, place]]] += (1 - p[b, k, 0]) * weights[b, k, place]
            close(scores.symbols[b, k].exp().detach(), expected.detach())
    assert scores.symbols.logsumexp(-1).abs().max() < 1e-12


@pytest.mark.parametrize("cell", cell_names())
def test_any_cell(cell: str) -> None:
    model, (source, s, target, t) = make(cell=cell), batch()
    trained = -model.decoder.loss(model(source, s, target, t), target, t)
    close(likelihood(model.writer(source, s), target, t), trained.detach())


@pytest.mark.parametrize("way", [w for w in WAYS if w.get("feedback", True)], ids=str)
def test_each_way_learns_to_copy_and_to_stop(way: dict[str, Any]) -> None:
    """Rows of a batch that end at different times."""
    torch.manual_seed(1)
    fields = SMALL | way | {"hidden_size": 48, "embedding_size": 16, "num_layers": 1, "num_encoder_layers": 1}
    model = Seq2Seq(K_OUT, K_OUT, EncoderDecoderOptions(**fields), range(K_OUT))
    lengths = torch.tensor([1, 2, 3, 4, 5] * 4)
    source = torch.randint(4, K_OUT, (20, 5))
    source[torch.arange(5) >= lengths[:, None]] = 1
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(200):
        loss = model.decoder.loss(model(source, lengths, source, lengths), source, lengths).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    written = greedy_decode(model.eval().writer(source, lengths))
    assert [w.ids for w in written] == [row[:n].tolist() for row, n in zip(source, lengths, strict=True)]
    assert not any(w.cut for w in written)


def test_a_label_is_a_context() -> None:
    options = DecoderOptions(**SMALL, condition="both", stop="bernoulli")
    model = ConditionalModel(6, K_OUT, options).double().eval()
    _, _, target, t = batch()
    label = torch.tensor([4, 5, 4])
    loss = model.decoder.loss(model(label, target, t), target, t)
    close(likelihood(model.writer(label), target, t), -loss.detach())
    other = model.decoder.loss(model(torch.tensor([5, 5, 4]), target, t), target, t)
    assert other[0] != loss[0]
    assert other[1] == loss[1]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stop": "never"}, "unknown stop 'never'"),
        ({"condition": "aligned"}, "take --stop source, got 'eos'"),
        ({"condition": "none", "attention": "none"}, "leave nothing to know the source by"),
        ({"input_feeding": True, "attention": "none"}, "--input-feeding needs attention"),
        ({"copy": True, "attention": "none"}, "--copy needs attention"),
        ({"attention": "dto"}, "unknown attention 'dto'"),
        ({"embedding_size": 0}, "embedding must be a whole number ≥ 1"),
        ({"dropout_output": 2.0}, "dropout_output must lie in 0 … 1"),
    ],
)
def test_what_cannot_be(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make(**fields)


def test_what_is_copied_has_a_name_in_the_target() -> None:
    with pytest.raises(OptionError, match="the target symbol of every source symbol"):
        Seq2Seq(K_IN, K_OUT, EncoderDecoderOptions(copy=True))
