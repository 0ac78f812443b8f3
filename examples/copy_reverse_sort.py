"""Copy, reverse and sort random sequences: exact at the lengths that were seen, and what becomes of longer ones.

python examples/copy_reverse_sort.py            all three, some minutes
python examples/copy_reverse_sort.py sort
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import recur

LETTERS = "abcdefghij"
SEEN, BEYOND = 10, 20
JOBS: dict[str, Callable[[str], str]] = {
    "copy": lambda word: word,
    "reverse": lambda word: word[::-1],
    "sort": lambda word: "".join(sorted(word)),
}
SIZES = {"copy": 20_000, "reverse": 20_000, "sort": 50_000}


def words(count: int, shortest: int, longest: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(shortest, longest + 1, size=count)
    return ["".join(draw.choice(list(LETTERS), size=length)) for length in lengths]


def write(path: Path, job: Callable[[str], str], sources: list[str]) -> str:
    path.write_text("".join(f"{word}\t{job(word)}\n" for word in sources))
    return str(path)


def learn(name: str) -> None:
    job = JOBS[name]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        train = write(here / "train.tsv", job, words(SIZES[name], 1, SEEN, seed=0))
        valid = write(here / "valid.tsv", job, words(500, 1, SEEN, seed=1))
        test = write(here / "test.tsv", job, words(2000, 1, SEEN, seed=2))
        model = recur.fit(
            train, task="seq2seq", valid=valid, test=test, attention="dot", hidden_size=96, embedding_size=32,
            embedding_init="uniform:0.1", batch_size=32, lr=0.01, grad_clip=0.5, epochs=3, dropout_input=0.05,
            dropout_output=0.0, smoothing=0.0, warmup_steps=50, threads=1,
        )  # fmt: skip
        seen = model.evaluate()
        print(f"{name}: lengths 1 … {SEEN}: {100 - 100 * seen['sequence_error_rate']:.2f} % right, ", end="")
        for low, high in ((11, 12), (13, 15), (16, 20)):
            longer = write(here / "longer.tsv", job, words(500, low, high, seed=3))
            found = model.evaluate([longer])
            print(
                f"{low} … {high}: {100 - 100 * found['sequence_error_rate']:.1f} %", end=", " if high < BEYOND else "\n"
            )
        print(f"  {model.run.metrics()[-1]['seconds']:.0f} s of training", flush=True)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or JOBS:
        learn(chosen)
