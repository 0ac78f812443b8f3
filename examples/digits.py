"""Handwritten digits, 8 × 8 points each: networks in two dimensions beside those in one, with as many weights.

    python examples/digits.py            needs scikit-learn, for its digits; about half an hour on one core

A network of one dimension reads the points row by row as one long line, from both ends, or takes each row as one step.
Of all, what is read out is the mean over their outputs, and all are treated alike:

- Images are shifted by up to a point while they are learned from. A step from row to row does what it learned wherever
  a shape stands, but only a grid has such a step from column to column.
- A hundred epochs: the loss of the plain grid falls slowest of all, and is still falling after thirty.
- The rate is the one that did best on the validation part with the first seed, the epoch the one that did best there
  with each. The test part is read once for each seed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from recur.nn import Grid, Recurrent

EPOCHS, BATCH, WEIGHTS = 100, 32, 6000
RATES = (0.003, 0.01, 0.03)
PAPER = -0.3
"""What a point without ink is."""


class Part(NamedTuple):
    x: Tensor
    """(n, 8, 8)"""
    y: Tensor


def parts(seed: int = 0) -> tuple[Part, Part, Part]:
    """60 % to learn from, 20 % to choose by, 20 % to test on."""
    found = load_digits()
    x, y = torch.tensor(found.images).float() / 16 + PAPER, torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    cuts = [round(0.6 * len(x)), round(0.8 * len(x))]
    train, valid, test = (Part(x[k], y[k]) for k in order.tensor_split(cuts))
    return train, valid, test


class Reader(nn.Module):
    """Images (B, 8, 8) to logits (B, 10)."""

    def __init__(self, kind: str, H: int) -> None:
        super().__init__()
        name, self.how = kind.split()
        cell = {"rnn": "elman", "lstm": "lstm"}[name]
        self.body: nn.Module
        if self.how == "grid":
            self.body, width = Grid("net" if name == "rnn" else "lstm", 1, H, corners=4), 4 * H
        else:
            self.body, width = Recurrent(cell, 8 if self.how == "rows" else 1, H, direction="both"), 2 * H
        self.output = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        if self.how == "grid":
            states = self.body(images[..., None]).flatten(1, 2)
        else:
            states = self.body(images if self.how == "rows" else images.flatten(1)[..., None]).outputs
        logits: Tensor = self.output(states.mean(1))
        return logits


def weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def width(kind: str) -> int:
    """The most units that keep to WEIGHTS weights."""
    return max(H for H in range(2, 200) if weights(Reader(kind, H)) <= WEIGHTS)


def accuracy(model: nn.Module, part: Part) -> float:
    with torch.no_grad():
        return float((model(part.x).argmax(-1) == part.y).float().mean())


def shifted(images: Tensor) -> Tensor:
    """Each by −1, 0 or 1 point down and across."""
    n, size, _ = images.shape
    wide = pad(images, (1, 1, 1, 1), value=PAPER)
    down, across = torch.randint(0, 3, (2, n, 1)) + torch.arange(size)
    return wide[torch.arange(n)[:, None, None], down[:, :, None], across[:, None]]


def train(kind: str, seed: int, rate: float) -> Reader:
    """The weights of the epoch that did best on the validation part."""
    learn, valid, _ = parts()
    torch.manual_seed(seed)
    model = Reader(kind, width(kind))
    optimizer = torch.optim.Adam(model.parameters())
    steps = EPOCHS * -(-len(learn.x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    best, best_weights = -1.0, copy.deepcopy(model.state_dict())
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(learn.x)).split(BATCH):
            cross_entropy(model(shifted(learn.x[batch])), learn.y[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        if (found := accuracy(model, valid)) > best:
            best, best_weights = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--match", default="", help="only networks whose name contains this")
    options = parser.parse_args()
    _, valid, test = parts()
    print(f"{'network':<14}{'weights':>8}{'rate':>8}{'valid':>9}{'test':>9}   each seed")
    kinds = ("rnn grid", "rnn points", "rnn rows", "lstm grid", "lstm points", "lstm rows")
    for kind in (kind for kind in kinds if options.match in kind):
        tried = {rate: train(kind, 0, rate) for rate in RATES}
        rate = max(tried, key=lambda rate: accuracy(tried[rate], valid))
        models = [tried[rate], *(train(kind, seed, rate) for seed in range(1, options.seeds))]
        figures = [[accuracy(model, part) for model in models] for part in (valid, test)]
        means = "".join(f"{statistics.fmean(figure):>9.2%}" for figure in figures)
        each = "  ".join(f"{figure:.2%}" for figure in figures[1])
        print(f"{kind:<14}{weights(models[0]):>8}{rate:>8}{means}   {each}", flush=True)


if __name__ == "__main__":
    main()
