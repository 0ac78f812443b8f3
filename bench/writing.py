"""Sequences from sequences beside the same by hand: a teacher-forced training step, decoding, output recurrence."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.side_by_side import Contest, Tensors
from recur.decoding import beam_search, greedy_decode
from recur.models import Seq2Seq
from recur.models.options import EncoderDecoderOptions
from recur.nn import OutputRecurrent

B, S, T, K, E, H = 32, 16, 14, 60, 128, 256


class ByHand(nn.Module):
    """The same encoder–decoder with additive attention, as one writes it with torch.nn."""

    def __init__(self, like: Seq2Seq) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(K, E), nn.Embedding(K, E)
        self.encoder = nn.LSTM(E, H, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * H, 2 * H)
        self.decoder = nn.LSTM(E, H, batch_first=True)
        self.query, self.key, self.score = nn.Linear(H, H), nn.Linear(2 * H, H, bias=False), nn.Linear(H, 1, bias=False)
        self.combine, self.out = nn.Linear(3 * H, H), nn.Linear(H, K)
        d, a = like.decoder, like.decoder.attention
        assert a is not None
        assert a.score is not None
        assert d.network.bridge is not None
        for ours, theirs in (
            (like.embedding, self.source), (d.embedding, self.target), (like.encoder, self.encoder),
            (d.network.bridge, self.bridge), (d.network.recurrent, self.decoder), (a.query, self.query),
            (a.key, self.key), (a.score, self.score), (d.combine, self.combine), (d.symbols, self.out),
        ):  # fmt: skip
            theirs.load_state_dict(ours.state_dict())

    def forward(self, source: Tensor, lengths: Tensor, before: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.source(source), lengths, batch_first=True, enforce_sorted=False)
        packed, (h, _) = self.encoder(packed)
        memory, _ = pad_packed_sequence(packed, batch_first=True)
        start = torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1))).chunk(2, -1)
        out, _ = self.decoder(self.target(before), tuple(part[None].contiguous() for part in start))
        scores = self.score(torch.tanh(self.query(out)[:, :, None] + self.key(memory)[:, None]))[..., 0]
        there = torch.arange(memory.shape[1]) < lengths[:, None]
        weights = scores.masked_fill(~there[:, None], -torch.inf).softmax(-1)
        logits: Tensor = self.out(torch.tanh(self.combine(torch.cat([out, weights @ memory], -1))))
        return logits


def _batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    sources = torch.randint(S // 2, S + 1, (B,), generator=draw)
    targets = torch.randint(T // 2, T + 1, (B,), generator=draw)
    sources[0], targets[0] = S, T
    source, target = (torch.randint(4, K, (B, n), generator=draw) for n in (S, T))
    source[torch.arange(S) >= sources[:, None]] = 1
    target[torch.arange(T) >= targets[:, None]] = 1
    return source, sources, target, targets


def _model(longest: int) -> Seq2Seq:
    return Seq2Seq(K, K, EncoderDecoderOptions(cell="lstm", hidden_size=H, embedding_size=E, max_length=longest))


def training() -> Contest:
    """Forward and backward, teacher-forced; loss and some gradients are compared."""
    model = _model(longest=30)
    peer = ByHand(model)
    source, s, target, t = _batch()
    before = torch.cat([torch.full((B, 1), 2), target], 1)
    gold = torch.cat([target, torch.full((B, 1), 1)], 1)
    gold[torch.arange(T + 1) == t[:, None]] = 3

    def ours() -> Tensors:
        model.zero_grad()
        loss = model.decoder.loss(model(source, s, target, t), target, t).sum() / B
        loss.backward()
        W = dict(model.named_parameters())["decoder.network.recurrent.weight_hh_l0"]
        return _named(loss, model.embedding.weight, W)

    def by_hand() -> Tensors:
        peer.zero_grad()
        logits = peer(source, s, before)
        loss = cross_entropy(logits.flatten(0, 1), gold.flatten(), ignore_index=1, reduction="sum") / B
        loss.backward()
        return _named(loss, peer.source.weight, dict(peer.decoder.named_parameters())["weight_hh_l0"])

    return Contest(f"encoder–decoder, teacher-forced, B {B} S {S} T {T} H {H} / torch.nn by hand", ours, by_hand)


def _named(loss: Tensor, embedding: Tensor | None, recurrent: Tensor) -> Tensors:
    assert embedding is not None
    assert embedding.grad is not None
    assert recurrent.grad is not None
    return {"loss": loss.detach(), "grad embedding": embedding.grad, "grad W": recurrent.grad}


def decoding(width: int) -> Contest:
    """A batch at once beside a loop over its sentences."""
    model = _model(longest=20).eval()
    nn.init.normal_(model.decoder.symbols.weight, std=0.2)  # sharp enough for equal scores to be no matter of rounding
    source, s, _, _ = _batch()

    @torch.no_grad()
    def scores(rows: slice) -> list[float]:
        writer = model.writer(source[rows, : int(s[rows].max())], s[rows])
        found = greedy_decode(writer) if width == 1 else [row[0] for row in beam_search(writer, width)]
        return [made.score for made in found]

    def ours() -> Tensors:
        return {"scores": torch.tensor(scores(slice(None)))}

    def one_by_one() -> Tensors:
        return {"scores": torch.tensor([scores(slice(b, b + 1))[0] for b in range(B)])}

    name = "greedy" if width == 1 else f"beam {width}"
    return Contest(f"decoding, {name}, {B} sentences at once / one by one", ours, one_by_one, tolerance=1e-3)


def output_recurrence() -> Contest:
    """All steps at once beside one after the other."""
    layer = OutputRecurrent(E, H, K)
    x, targets = torch.randn(B, 35, E), one_hot(torch.randint(K, (B, 35)), K).float()
    first = torch.zeros(B, K)

    def result(outputs: Tensor) -> Tensors:
        layer.zero_grad()
        outputs.square().mean().backward()
        assert layer.back.weight.grad is not None
        return {"outputs": outputs.detach(), "grad W": layer.back.weight.grad}

    return Contest(
        f"output recurrence, teacher-forced, B {B} T 35 H {H}, all steps at once / one by one",
        lambda: result(layer(x, targets)),
        lambda: result(layer.run(x, lambda t, o: targets[:, t], first)),
    )


def contests() -> list[Contest]:
    return [training(), decoding(1), decoding(5), output_recurrence()]
