"""Spoken-digit-like tones, made and not recorded: numbers dialled by many hands on many telephones, in noise.

    python examples/tones.py tones.npz                 label sequences: which digits, not when (CTC)
    python examples/tones.py steps.npz --labels steps  a label for each step, `-` for none
    recur train tones.npz

A digit is two tones at once, as telephones have them. Here a step is the energy in 16 bands of frequency, a sixtieth
of a second or so, of 1 to 8 digits; each sequence has a pitch, a tempo, a loudness and a noise of its own, each digit
a length and a fading of its own, and gaps may be missing, but between equal digits. The file has the parts train,
valid and test, 3,000, 300 and 300 sequences; the same seed gives the same file.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

BANDS = 16
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477)
DIGITS = {str(1 + 3 * row + column): (LOW[row], HIGH[column]) for row in range(3) for column in range(3)}
DIGITS["0"] = (LOW[3], HIGH[1])
CENTRES = np.geomspace(600, 1700, BANDS)
SILENCE = "-"


def energies(pitch: float, tones: tuple[float, float]) -> np.ndarray:
    """(BANDS,): what each band hears of two tones, which lie a little higher or lower on every telephone."""
    distance = np.log(CENTRES[:, None] / (pitch * np.array(tones))) / 0.05
    heard: np.ndarray = np.exp(-(distance**2) / 2).sum(1)
    return heard


def dialled(draw: np.random.Generator) -> tuple[np.ndarray, list[str], list[str]]:
    """Steps (T, BANDS), the digits, and the digit of each step."""
    digits = [str(d) for d in draw.integers(0, 10, draw.integers(1, 9))]
    pitch, tempo = np.exp(draw.normal(0, 0.03)), draw.uniform(3, 9)
    loudness, noise = np.exp(draw.normal(0, 0.5)), np.exp(draw.uniform(np.log(0.02), np.log(0.2)))
    quiet = np.zeros(BANDS)
    steps = [quiet] * int(draw.integers(0, 6))
    tags = [SILENCE] * len(steps)
    for k, digit in enumerate(digits):
        gap = int(draw.poisson(0.3 * tempo)) if k else 0
        gap = max(gap, 1) if k and digits[k - 1] == digit else gap
        length = max(2, round(tempo * np.exp(draw.normal(0, 0.25))))
        fading = np.exp(-draw.uniform(0, 0.15) * np.arange(length))[:, None]
        steps += [quiet] * gap + list(loudness * fading * energies(pitch, DIGITS[digit]))
        tags += [SILENCE] * gap + [digit] * length
    rest = int(draw.integers(0, 6))
    clean = np.array(steps + [quiet] * rest)
    hum = noise * np.exp(draw.normal(0, 0.5, BANDS))
    heard = np.log(clean + hum * draw.gamma(2.0, 0.5, clean.shape) + 1e-3)
    return heard, digits, tags + [SILENCE] * rest


def part(count: int, draw: np.random.Generator, labels: str) -> dict[str, np.ndarray]:
    """Arrays as recur reads them: all steps behind each other, and so the labels."""
    steps, digits, tags = zip(*(dialled(draw) for _ in range(count)), strict=True)
    arrays = {"x": np.concatenate(steps).astype(np.float32), "lengths": np.array([len(x) for x in steps])}
    if labels == "steps":
        return arrays | {"y": np.array([tag for row in tags for tag in row])}
    return arrays | {"y": np.array([d for row in digits for d in row]), "y_lengths": np.array([len(d) for d in digits])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the .npz to write")
    parser.add_argument("--labels", choices=("sequences", "steps"), default="sequences")
    parser.add_argument("--count", type=int, default=3000, help="to learn from; a tenth as many in the other parts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    arrays: dict[str, Any] = {}
    for name, count in (("train", options.count), ("valid", options.count // 10), ("test", options.count // 10)):
        arrays |= {f"{key}_{name}": value for key, value in part(count, draw, options.labels).items()}
    np.savez_compressed(options.file, **arrays)
    print(f"{options.file}: {options.count:,} sequences of {len(arrays['x_train']):,} steps to learn from")


if __name__ == "__main__":
    main()
