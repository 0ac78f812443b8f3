"""Handwriting on a tablet, made and not collected: the way of a pen, (dx, dy, lifted) at every step.

    python examples/pens.py words.npz                   a few words, a letter a label, `_` between words (CTC)
    python examples/pens.py letters.npz --labels class  one letter each
    recur train words.npz

Every letter is some strokes through a few points, bent into splines; every writer has a slant, a size, a width, a
speed, a tremor and a way of his own to shape each letter. The file has the parts train, valid and test; the words of
each are drawn from the same list, and the hands differ. The same seed gives the same file.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

LETTERS = {
    "a": "442504032243 4542",
    "b": "0802 043544433202",
    "c": "442504032243",
    "d": "442504032243 4842",
    "e": "0344351504032242",
    "f": "47382722 0545",
    "g": "442504032243 45412001",
    "h": "0802 0425354442",
    "i": "2522 2728",
    "j": "35312001 3738",
    "k": "0802 450342",
    "l": "28232232",
    "m": "0502 04152422 24354442",
    "n": "0502 0425354442",
    "o": "25040322434425",
    "p": "0500 043544433202",
    "q": "442504032243 4540",
    "r": "0502 042545",
    "s": "451504433202",
    "t": "27233243 0545",
    "u": "0503123243 4542",
    "v": "052245",
    "w": "0512243245",
    "x": "0542 4502",
    "y": "0523 4500",
    "z": "05450242",
}
"""Strokes as points `xy xy …`: the baseline is at 2, small letters end at 5, tall ones at 8."""

WORDS = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what
all were we when your can said there use an each which she do how their if will up other about out many then them these
so some her would make like him into time has look two more write go see number no way could people my than first water
been call who oil its now find long down day did get come made may part quick fox jump lazy dog box size zero quiz major
joke hazy wax vex
""".split()  # noqa: SIM905  a page of words is read more easily than a list of them


def spline(points: np.ndarray, fine: int = 12) -> np.ndarray:
    """A curve through all points (Catmull–Rom)."""
    if len(points) < 3:
        t = np.linspace(0, 1, fine)[:, None]
        straight: np.ndarray = points[0] * (1 - t) + points[-1] * t
        return straight
    p = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    t = np.linspace(0, 1, fine, endpoint=False)[:, None]
    pieces = [
        (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3) / 2
        for a, b, c, d in zip(p, p[1:], p[2:], p[3:], strict=False)
    ]
    return np.concatenate([*pieces, points[-1:]])


def every(curve: np.ndarray, step: float) -> np.ndarray:
    """Points of a curve, so far from each other."""
    along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(curve, axis=0).T))])
    at = np.linspace(0, along[-1], max(2, round(along[-1] / step) + 1))
    return np.stack([np.interp(at, along, curve[:, k]) for k in (0, 1)], axis=1)


class Hand:
    """One writer."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        self.slant, self.tilt = draw.normal(0.1, 0.25), draw.normal(0, 0.06)
        self.size, self.width = np.exp(draw.normal(0, 0.25)), np.exp(draw.normal(0, 0.2))
        self.step, self.tremor, self.spacing = draw.uniform(0.6, 1.0), draw.uniform(0.03, 0.15), draw.uniform(5, 6.5)
        self.shapes = {letter: draw.normal(0, 0.4, (40, 2)) for letter in LETTERS}

    def write(self, text: str) -> np.ndarray:
        """(T, 3): dx, dy, and whether the pen was lifted on the way there."""
        strokes, x = [], 0.0
        for letter in text:
            if letter == "_":
                x += 0.8 * self.spacing
                continue
            moved, used = self.shapes[letter] + self.draw.normal(0, 0.2, (40, 2)), 0
            for stroke in LETTERS[letter].split():
                points = np.array([[int(a), int(b)] for a, b in zip(stroke[::2], stroke[1::2], strict=True)], float)
                points += moved[used : used + len(points)]
                used += len(points)
                strokes.append(every(spline(points + np.array([x, 0])), self.step))
            x += self.spacing * np.exp(self.draw.normal(0, 0.06))
        way = np.concatenate(strokes)
        lifted = np.concatenate([[1, *[0] * (len(stroke) - 1)] for stroke in strokes])
        way[:, 0] = self.width * way[:, 0] + self.slant * way[:, 1]
        way[:, 1] += self.tilt * way[:, 0]
        way = self.size * (way + self.draw.normal(0, self.tremor, way.shape))
        moves = np.diff(way, axis=0, prepend=way[:1])
        return np.concatenate([moves, lifted[:, None]], axis=1)


def part(count: int, draw: np.random.Generator, labels: str) -> dict[str, np.ndarray]:
    """Arrays as recur reads them: all steps behind each other."""
    if labels == "class":
        texts = [str(t) for t in draw.choice(list(LETTERS), count)]
    else:
        texts = ["_".join(map(str, draw.choice(WORDS, draw.integers(1, 4)))) for _ in range(count)]
    ways = [Hand(draw).write(text) for text in texts]
    arrays = {"x": np.concatenate(ways).astype(np.float32), "lengths": np.array([len(way) for way in ways])}
    if labels == "class":
        return arrays | {"y": np.array(texts)}
    return arrays | {"y": np.array(list("".join(texts))), "y_lengths": np.array([len(text) for text in texts])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the .npz to write")
    parser.add_argument("--labels", choices=("sequences", "class"), default="sequences")
    parser.add_argument("--count", type=int, default=4000, help="to learn from; a tenth as many in the other parts")
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
