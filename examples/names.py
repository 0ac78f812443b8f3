"""Surnames of a given language, written by a language model and judged by a classifier that knows real ones only.

    python examples/names.py FOLDER          with train.tsv, valid.tsv and test.tsv, `label TAB name`; some minutes

The judge is a logistic regression on the n-grams of a name's characters, n = 1 … 4: nothing recurrent, and nothing that
the writer shares. It reads each name that was written and says which language it is of.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import recur
from recur.data.text import read_pairs

SAMPLES = 200


class Judge:
    """P(label | name) = softmax(Σ of the rows of a table that the name's n-grams have / √(their number))."""

    def __init__(self, names: list[tuple[str, str]], epochs: int = 15) -> None:
        torch.manual_seed(0)
        self.labels = sorted({label for label, _ in names})
        self.features: dict[str, int] = {}
        known = [self.grams(name, learn=True) for _, name in names]
        targets = torch.tensor([self.labels.index(label) for label, _ in names])
        self.weight = nn.EmbeddingBag(len(self.features) + 1, len(self.labels), mode="sum")
        nn.init.zeros_(self.weight.weight)
        optimizer = torch.optim.Adam(self.weight.parameters(), 0.02, weight_decay=1e-6)
        for _ in range(epochs):
            for rows in torch.randperm(len(names)).split(256):
                loss = cross_entropy(self.scores([known[k] for k in rows]), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def grams(self, name: str, learn: bool = False) -> list[int]:
        text = f"^{name.lower()}$"
        found = [text[at : at + n] for n in (1, 2, 3, 4) for at in range(len(text) - n + 1)]
        if learn:
            return [self.features.setdefault(gram, len(self.features) + 1) for gram in found]
        return [self.features.get(gram, 0) for gram in found]

    def scores(self, names: list[list[int]]) -> Tensor:
        ends = torch.tensor([0, *map(len, names)]).cumsum(0)[:-1]
        scores: Tensor = self.weight(torch.tensor([k for name in names for k in name]), ends)
        return scores / torch.tensor([len(name) ** 0.5 for name in names])[:, None]

    @torch.no_grad()
    def __call__(self, names: list[str]) -> list[str]:
        return [self.labels[k] for k in self.scores([self.grams(name) for name in names]).argmax(-1).tolist()]


def main(folder: Path) -> None:
    train, valid, test = (str(folder / f"{part}.tsv") for part in ("train", "valid", "test"))
    judge = Judge([(pair.source, pair.target) for pair in read_pairs([train])])
    real = defaultdict(list)
    for pair in read_pairs([test]):
        real[pair.source].append(pair.target)
    seen = {pair.target for pair in read_pairs([train])}

    model = recur.fit(
        train, task="conditional", valid=valid, test=test, condition="both", hidden_size=256, embedding_size=64,
        batch_size=64, lr=0.003, grad_clip=0.5, epochs=12, dropout_input=0.1, dropout_output=0.4, threads=1,
    )  # fmt: skip
    print(f"perplexity of a character on the test names {model.evaluate()['perplexity']:.2f}")
    print("language     real names judged right   written ones   of which new   some of them")
    shares = []
    for label in sorted(real):
        drawn = model.generate(label, samples=SAMPLES, seed=1)
        right = [sum(guess == label for guess in judge(names)) / len(names) for names in (real[label], drawn)]
        new = sum(name not in seen for name in drawn) / SAMPLES
        shares.append((*right, new, len(real[label])))
        print(f"{label:<12} {right[0]:>20.0%} {right[1]:>18.0%} {new:>14.0%}   {', '.join(drawn[:4])}")
    total = sum(row[3] for row in shares)
    for what, weights in (
        ("each language alike", [1 / len(shares)] * len(shares)),
        ("by size", [r[3] / total for r in shares]),
    ):
        means = [sum(w * row[k] for w, row in zip(weights, shares, strict=True)) for k in range(3)]
        print(f"{what}: real {means[0]:.1%}, written {means[1]:.1%}, new {means[2]:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
