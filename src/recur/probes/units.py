"""What single units follow, and where the state was like this before.

A unit is ranked by |r|, the correlation of its state along the text with something that can be read off the text:

    column      how far into its line        line length   of the line it stands in
    position    how far into the text        brackets      how many are open
    quotes      inside a pair or not         a label       numbers of the user's own, one for each token
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.errors import OptionError, ShapeError
from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject

Series = np.ndarray[Any, np.dtype[np.float64]]

CLEAR = 0.6
"""|r| from which a unit is said to follow something."""
OPENING, CLOSING, QUOTES = "([{（【「《", ")]}）】」》", "\"“”'"


def features(tokens: Sequence[str], labels: Mapping[str, Sequence[float]] | None = None) -> dict[str, Series]:
    """What can be read off a text, token by token, as it stands after each."""
    N = len(tokens)
    column, depth, quoted = np.zeros(N), np.zeros(N), np.zeros(N)
    at = opened = inside = 0
    for k, token in enumerate(tokens):
        at = 0 if token in ("\n", "<eos>") else at + 1
        for character in token if len(token) < 4 or token[0] != "<" else "":
            opened = max(0, opened + (character in OPENING) - (character in CLOSING))
            inside = 1 - inside if character in QUOTES[:1] else inside
            inside = {"“": 1, "”": 0}.get(character, inside)
        if token in ("\n", "<eos>"):
            inside = 0  # a mark that is never closed ends with its line
        column[k], depth[k], quoted[k] = at, opened, inside
    length = np.zeros(N)
    begin = 0
    for k in range(N):
        if k + 1 == N or column[k + 1] == 0:
            length[begin : k + 1] = column[k]
            begin = k + 1
    found = {
        "position": np.arange(N, dtype=np.float64),
        "column": column,
        "line length": length,
        "brackets": depth,
        "quotes": quoted,
    }
    for name, values in (labels or {}).items():
        if len(values) != N:
            raise ShapeError(f"label {name!r} must have a number for each of {N} tokens, got {len(values)}")
        found[name] = np.asarray(values, np.float64)
    return {name: series for name, series in found.items() if series.std() > 0}


def correlations(states: Tensor, series: Series) -> Tensor:
    """r of each unit, (T, H) → (H,); 0 for a unit that does not move."""
    s = states.double() - states.double().mean(dim=0)
    f = torch.from_numpy(series - series.mean())
    norms = torch.linalg.vector_norm(s, dim=0) * torch.linalg.vector_norm(f)
    r: Tensor = (f @ s) / norms.clamp_min(1e-30)
    return r


def values(subject: Subject, layer: int = 0, state: str = "", unit: int = 0) -> Tensor:
    """(T,): one unit of a state along the text, to colour it by."""
    if not 0 <= layer < len(subject.layers):
        raise OptionError(f"layer must lie in 0 … {len(subject.layers) - 1}, got {layer}")
    chosen = subject.layers[layer].states
    name = state or next(iter(chosen))
    if name not in chosen:
        raise OptionError(f"state must be one of {', '.join(chosen)}, got {name!r}")
    part = chosen[name][0]
    if not 0 <= unit < part.shape[1]:
        raise OptionError(f"unit must lie in 0 … {part.shape[1] - 1}, got {unit}")
    return part[:, unit]


def ranked(subject: Subject, labels: Mapping[str, Sequence[float]] | None = None, top: int = 5) -> Seen:
    """For each feature of the text, the units that follow it best."""
    tokens = read_tokens(subject)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, series in features(tokens, labels).items():
        rows: list[dict[str, Any]] = []
        for layer in subject.layers:
            for state, part in layer.states.items():
                r = correlations(part[0], series)
                best = r.abs().topk(min(top, len(r))).indices
                rows += [{"layer": layer.name, "state": state, "unit": int(k), "r": float(r[k])} for k in best]
        found[name] = sorted(rows, key=lambda row: -abs(row["r"]))[:top]
    numbers = {"ranked": found, "tokens": len(tokens)}
    if not found:
        return Seen(Finding("units", Level.SOUND, 0.0, CLEAR, "the text has nothing for a unit to follow"), numbers)
    name = max(found, key=lambda key: abs(found[key][0]["r"]))
    best_row = found[name][0]
    where = f"unit {best_row['unit']} of {best_row['state']}, {best_row['layer']}"
    word = "follows" if abs(best_row["r"]) > CLEAR else "comes nearest to following"
    verdict = f"{where} {word} {name}: r = {best_row['r']:.2f}"
    return Seen(Finding("units", Level.SOUND, abs(best_row["r"]), CLEAR, verdict), numbers)


def similar(subject: Subject, begin: int, end: int, layer: int = -1, top: int = 8) -> list[dict[str, Any]]:
    """Where else in the text the state is like at the end of tokens begin … end (exclusive): cosine, best first."""
    states = torch.cat([part[0] for part in subject.layers[layer].states.values()], dim=-1).double()
    N, width = len(states), end - begin
    if not 0 <= begin < end <= N:
        raise OptionError(f"a span lies within 0 … {N} and holds a token at least, got {begin} … {end}")
    states = states - states.mean(dim=0)  # what all places share says nothing about this one
    unit = states / torch.linalg.vector_norm(states, dim=-1, keepdim=True).clamp_min(1e-30)
    # The mean over the last tokens of the span: how it ended, and how it came there.
    tail = min(width, 4)
    likeness = torch.stack([unit[max(0, tail - 1 - k) : N - k] @ unit[end - 1 - k] for k in range(tail)]).mean(dim=0)
    score = torch.full((N,), -2.0, dtype=torch.float64)
    score[tail - 1 :] = likeness
    score[max(0, begin) : end + width] = -2.0
    found: list[dict[str, Any]] = []
    for _ in range(top):
        k = int(score.argmax())
        if score[k] <= -2:
            break
        start = max(0, k + 1 - width)
        found.append({"begin": start, "end": k + 1, "likeness": float(score[k])})
        score[max(0, k - width) : k + width + 1] = -2.0
    return found


def read_tokens(subject: Subject) -> list[str]:
    """The tokens as the network read them: what stands before the text first."""
    ids = subject.rows(1, len(subject.inputs))[0][0].tolist()
    return [subject.vocab.tokens[k] if subject.vocab is not None else str(k) for k in ids]
