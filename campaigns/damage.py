"""Every file of a run cut, flipped, deleted, or replaced by a link, a folder, a pipe, NaN, or another run's.

Then a command reads the run. It must end in its right answer, or in one line and 2; never in a traceback, a crash, a
wait without end or another answer; and nothing outside of the run may have changed. In every third try the digests of
the manifest are made to fit the damage, as a stranger could: then any answer is right, and all the rest must hold.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from campaigns.campaign import Attempt, dice
from campaigns.small import Ended, Undisturbed, arguments_of, recur, set_up, task_of
from recur.errors import RecurError
from recur.runs.manifest import LOGS, Manifest, sha256
from recur.runs.weights import from_bytes, to_bytes

TRIES = 5500
OUTSIDE = "this is not the run's"


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-damage-") as folder:
        set_up(Path(folder))
        try:
            runs = _Runs()
            for number in numbers:
                yield _attempt(number, runs, dice(seed, number))
        finally:
            os.chdir(home)


class _Runs:
    """A finished run of each task, another of its kind, and what each command makes of it."""

    def __init__(self) -> None:
        self._undisturbed = Undisturbed()
        self._answers: dict[tuple[str, ...], Ended] = {}

    def paths(self, task: str) -> tuple[Path, Path]:
        self._undisturbed.result(task)
        other = Path(f"other-{task}")
        if not other.exists():
            assert recur(*arguments_of(task, str(other)), "--seed", "1").code == 0
        return Path(self._undisturbed.path(task)), other

    def answer(self, task: str, verb: list[str]) -> Ended:
        if (key := (task, *verb)) not in self._answers:
            copy = Path("whole")
            shutil.copytree(self.paths(task)[0], copy)
            self._answers[key] = _ask(verb, copy)
            shutil.rmtree(copy)
        return self._answers[key]


def _attempt(number: int, runs: _Runs, rng: random.Random) -> Attempt:
    task = task_of(number)
    verb = rng.choice(_verbs(task))
    wanted, (whole, other) = runs.answer(task, verb), runs.paths(task)
    copy = Path("whole")  # under the name of the undamaged one, which answers hold
    shutil.copytree(whole, copy)
    outside = Path("outside.txt")
    outside.write_text(OUTSIDE)
    files = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    name = rng.choice([*files, "manifest.json", "model.safetensors", "resume"])
    kind = rng.choice(list(KINDS) if Path(name).suffix == ".safetensors" else list(KINDS)[2:])
    try:
        KINDS[kind](_Target(copy / name, other / name, outside.absolute(), rng))
        forged = number % 3 == 2 and forge(copy, files)
        found = _ask(verb, copy)
        failure = found.fault
        if failure is None and found.code == 0 and not forged and not _same_answer(found, wanted):
            failure = f"another answer: {found.out[:300]} for {wanted.out[:300]}"
        if outside.read_text() != OUTSIDE:
            failure = f"{outside} was changed"
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return Attempt(number, f"{task}: {name} {kind}{', digests forged' * forged}; {' '.join(verb)}", failure)


def _verbs(task: str) -> list[list[str]]:
    found = [["eval"], ["resume"], ["resume", "--steps", "2"]]
    if task in ("language", "conditional"):
        label = ["--label", "good"] if task == "conditional" else []
        found.append(["sample", "--length", "8", "--seed", "0", *label])
    return found


def _ask(verb: list[str], run: Path) -> Ended:
    """What a command says, without the clock; after training, the weights too."""
    ended, weights = recur(verb[0], str(run), *verb[1:], "--json", seconds=30), run / "model.safetensors"
    if ended.code == 0:
        said = _without_clock(json.loads(ended.out))
        trained = sha256(weights.read_bytes()) if verb[0] == "resume" and weights.is_file() else ""
        ended = ended._replace(out=json.dumps([said, trained]))
    return ended


VERDICT = ("verdict", "try")
"""Parts of a training's result that are computed from the metrics log."""


def _same_answer(found: Ended, wanted: Ended) -> bool:
    """Return True if two answers are equal; a verdict may differ if the loss of the log was reported."""
    if found.out == wanted.out:
        return True
    if "metrics.jsonl is damaged" not in found.err:
        return False
    (result, weights), (other, other_weights) = (json.loads(ended.out) for ended in (found, wanted))
    return weights == other_weights and {**result, **dict.fromkeys(VERDICT)} == {**other, **dict.fromkeys(VERDICT)}


def _without_clock(value: object) -> object:
    if isinstance(value, dict):
        return {k: _without_clock(v) for k, v in value.items() if "second" not in k}
    return [_without_clock(item) for item in value] if isinstance(value, list) else value


# Kinds of damage -------------------------------------------------------------------------------------------------


class _Target(NamedTuple):
    path: Path
    other: Path
    """The same file of another run."""
    outside: Path
    rng: random.Random


def _nan(t: _Target) -> None:
    tensors, about = from_bytes(t.path.read_bytes(), t.path)
    name = t.rng.choice([name for name, value in tensors.items() if value.is_floating_point() and value.numel()])
    tensors[name] = torch.full_like(tensors[name], t.rng.choice([float("nan"), float("inf")]))
    t.path.write_bytes(to_bytes(tensors, about))


def _shape(t: _Target) -> None:
    tensors, about = from_bytes(t.path.read_bytes(), t.path)
    name = t.rng.choice(list(tensors))
    value = tensors[name].flatten()
    kinds = [value[: len(value) // 2], value.repeat(3), value.double(), value[None], value.to(torch.uint8)]
    tensors[name] = t.rng.choice(kinds).contiguous()
    if t.rng.random() < 0.2:
        del tensors[name]
    t.path.write_bytes(to_bytes(tensors, about))


def _truncated(t: _Target) -> None:
    _rewrite(t, lambda content: content[: t.rng.randrange(len(content) + 1)])


def _flipped(t: _Target) -> None:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(t.rng.choice([1, 1, 3, 20])):
            changed[t.rng.randrange(len(changed))] ^= 1 << t.rng.randrange(8)
        return bytes(changed)

    _rewrite(t, flip)


def _rewrite(t: _Target, change: Callable[[bytes], bytes]) -> None:
    if t.path.is_file() and (content := t.path.read_bytes()):
        t.path.write_bytes(change(content))


def _gone(t: _Target) -> None:
    shutil.rmtree(t.path) if t.path.is_dir() else t.path.unlink()


def _replaced_by(make: Callable[[_Target], object]) -> Callable[[_Target], None]:
    def replace(t: _Target) -> None:
        _gone(t)
        make(t)

    return replace


KINDS: dict[str, Callable[[_Target], None]] = {
    "not finite": _nan,
    "of another shape": _shape,
    "truncated": _truncated,
    "flipped": _flipped,
    "extended": lambda t: _rewrite(t, lambda content: content + content[: t.rng.randrange(1, 200)]),
    "zeros": lambda t: _rewrite(t, lambda content: bytes(len(content))),
    "deleted": _gone,
    "a link to elsewhere": _replaced_by(lambda t: t.path.symlink_to(t.outside)),
    "a link to nothing": _replaced_by(lambda t: t.path.symlink_to("nothing")),
    "a link to itself": _replaced_by(lambda t: t.path.symlink_to(t.path.name)),
    "a hard link": _replaced_by(lambda t: os.link(t.outside, t.path)),
    "a folder": _replaced_by(lambda t: t.path.mkdir()),
    "a pipe": _replaced_by(lambda t: os.mkfifo(t.path)),
    "another run's": _replaced_by(
        lambda t: shutil.copytree(t.other, t.path) if t.other.is_dir() else shutil.copy(t.other, t.path)
    ),
}
"""The first two are for tensors."""


def forge(run: Path, files: Iterable[str]) -> bool:
    """Have the manifest name what is there now; false where there is no manifest to forge."""
    path = run / "manifest.json"
    if not path.is_file():
        return False
    try:
        manifest = Manifest.from_json(path.read_bytes(), "")
    except RecurError:
        return False
    contents = {name: (run / name).read_bytes() for name in files if (run / name).is_file()}
    for name, content in contents.items():
        if name in manifest.files:
            manifest.files[name] = [sha256(content)]
    logs = {name: (len(contents.get(name, b"")), sha256(contents.get(name, b""))) for name in LOGS}
    manifest.checkpoints = [
        type(entry)(entry.file, sha256(contents.get(entry.file, b"")), entry.step, logs)
        for entry in manifest.checkpoints
    ]
    path.write_bytes(manifest.to_json())
    return True
