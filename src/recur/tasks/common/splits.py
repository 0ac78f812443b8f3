"""Training, validation and test sets, held out of one set of examples.

stratified   every class has its share of the validation and test sets, and at least one training example
grouped      examples of one group (`--group`) stay on one side; so do equal inputs
repeatable   the split depends on the examples alone, not on the seed of training
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from recur.data.reading import Reading
from recur.data.text.labelled import LABEL_MARK, recorded_columns
from recur.data.text.recognition import one_encoding
from recur.errors import TextError, listed, shown
from recur.i18n import Message
from recur.tasks.common.options import DataOptions, FoldOptions, LabelledOptions, SplitOptions, parse_fold

Item = TypeVar("Item")

HELD = 0.05
"""Share of the examples in the validation set and in the test set, if not given."""


class Reader(Protocol[Item]):
    """Function that reads examples from files."""

    def __call__(self, names: Sequence[str], /, *, reading: Reading) -> list[Item]: ...


def reading_of(options: DataOptions, prior: bool = False, **others: Any) -> Reading:
    """Return the settings of readers that options hold.

    Args:
        prior: whether the encoding is only likely: for files that come after training.
        others: settings that replace those of the options.
    """
    names = (name for name in Reading.__dataclass_fields__ if name not in ("likely", "strict"))
    fields = {name: value for name in names if isinstance(value := getattr(options, name, None), str | bool)}
    if prior and "encoding" not in others:
        fields["likely"] = fields.pop("encoding", "")
    return Reading(**fields | others)


LabelledT = TypeVar("LabelledT", bound=LabelledOptions)


def with_columns(options: LabelledT) -> LabelledT:
    """Return options that record the columns of the training files, their delimiter and their encoding."""
    reading = reading_of(options, strict=True)
    found = recorded_columns(options.texts, reading)
    return options.changed(**{name: value for name, value in found.items() if name in options.names()})


def common_encoding(options: DataOptions) -> str:
    """Return the encoding of all text files of the options, for the run to record; empty for UTF-8 and for several."""
    names = [name for part in ("texts", "valid", "test") for name in options.paths(part)]
    found = {one_encoding(name) for name in names}
    encoding = found.pop() if len(found) == 1 else None
    return "" if encoding in (None, "utf-8") else str(encoding)


def split(
    options: SplitOptions, read: Reader[Item], reading: Reading | None = None
) -> tuple[list[Item], list[Item], list[Item]]:
    """Return the training, validation and test sets.

    A set that is not given is held out: `--valid-fraction` and `--test-fraction` of the examples, or one fold and a
    tenth of the rest. A test file is not read here, because training does not need it: the set is empty, and
    `evaluation_set` reads it.
    """
    reading = reading_of(options) if reading is None else reading
    items = read(options.texts, reading=reading)
    if isinstance(options, FoldOptions) and options.fold:
        return _fold(options, read, items, reading)
    parts: dict[str, list[Item]] = {"valid": read(options.valid, reading=reading)} if options.valid else {}
    if options.test:
        parts["test"] = []
    fractions = {"valid": options.valid_fraction, "test": options.test_fraction}
    missing = {name: HELD if f is None else f for name, f in fractions.items() if name not in parts}
    if options.test_fraction == 0 and "test" in missing:
        parts["test"] = []
        del missing["test"]
    if missing and min(int(f * len(items) + 1e-9) for f in missing.values()) < 1:
        flags = " and ".join(f"--{name}" for name in missing)
        why = f"{', '.join(options.texts)}: {len(items)} examples are too few to hold some out; give {flags}"
        raise TextError(f"{why}; {reading.note()}" if reading.left_out else why)
    held = hold_out(items, list(missing.values()), reading)
    for name, places in zip(missing, held, strict=True):
        parts[name] = [items[k] for k in places]
    taken = {k for places in held for k in places}
    train = [item for k, item in enumerate(items) if k not in taken]
    if options.valid:
        _note_shared(train, parts["valid"], reading)
    return train, parts["valid"], parts["test"]


def evaluation_set(options: SplitOptions, read: Reader[Item], reading: Reading | None = None) -> list[Item]:
    """Return the test set. Training files are read only if the test set is held out of them."""
    reading = reading_of(options) if reading is None else reading
    found = read(options.test, reading=reading) if options.test else split(options, read, reading)[2]
    if not found:
        raise TextError("the run holds no test set out (--test-fraction 0); name a file to evaluate on")
    return found


def _fold(
    options: FoldOptions, read: Reader[Item], items: list[Item], reading: Reading
) -> tuple[list[Item], list[Item], list[Item]]:
    k, n = parse_fold(options.fold)
    if len(items) < max(2 * n, 20):
        raise TextError(f"{', '.join(options.texts)}: {len(items)} examples are too few for {n} folds")
    test = set(_folds(items, n, reading)[k - 1])
    rest = [i for i in range(len(items)) if i not in test]
    share = options.valid_fraction or 0.1
    valid = read(options.valid, reading=reading) if options.valid else []
    if not options.valid:
        held = hold_out([items[i] for i in rest], [share], reading)[0]
        chosen = {rest[i] for i in held}
        valid, rest = [items[rest[i]] for i in held], [i for i in rest if i not in chosen]
    return [items[i] for i in rest], valid, [items[i] for i in sorted(test)]


# Units ------------------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """Examples that stay on one side of a split."""

    label: str
    """Class that is stratified by: that of the first example."""
    places: list[int]


def label_of(item: Any) -> str:
    """Return the class of an example, the first if it has several; empty if it has none."""
    found = getattr(item, "label", None)
    found = getattr(item, "target", None) if found is None and hasattr(item, "values") else found
    return found.partition(LABEL_MARK)[0] if isinstance(found, str) else ""


def input_of(item: Any) -> Hashable:
    """Return what a model reads of an example, to find equal ones."""
    for name in ("text", "words"):
        if (found := getattr(item, name, None)) is not None:
            tree = (*found, "", *map(str, item.labels)) if hasattr(item, "children") else ()
            return tree or str(found)
    if hasattr(item, "source"):
        return (item.source, item.target)
    array = getattr(item, "pixels", getattr(item, "values", None))
    return (array.shape, array.tobytes()) if isinstance(array, np.ndarray) else id(item)


def units_of(items: Sequence[Any], reading: Reading, largest: int) -> list[Unit]:
    """Return examples grouped by `--group`, else by equal inputs.

    Equal inputs are not grouped if a group would be larger than `largest`: a file of few distinct inputs has no other
    split than one with inputs on both sides.
    """
    groups: dict[Hashable, list[int]] = {}
    named = any(getattr(item, "group", "") for item in items)
    for k, item in enumerate(items):
        own = getattr(item, "group", "") if named else input_of(item)
        groups.setdefault(own if own != "" else ("", k), []).append(k)
    several = [places for places in groups.values() if len(places) > 1]
    if not named and several:
        count = sum(len(places) - 1 for places in several)
        if max(map(len, several)) > max(largest, 1):
            reading.add_note(
                Message(
                    "{n} of {total} examples repeat others, some so often that equal examples are in several sets",
                    n=f"{count:,}",
                    total=f"{len(items):,}",
                )
            )
            return [Unit(label_of(item), [k]) for k, item in enumerate(items)]
        reading.add_note(
            Message(
                "{n} of {total} examples repeat others; equal ones are kept in one set",
                n=f"{count:,}",
                total=f"{len(items):,}",
            )
        )
    return [Unit(label_of(items[places[0]]), places) for places in groups.values()]


def hold_out(items: Sequence[Any], fractions: Sequence[float], reading: Reading) -> list[list[int]]:
    """Return the places of held-out examples, in random order, one list per fraction; the rest is the training set."""
    if not fractions:
        return []
    wanted = [int(f * len(items) + 1e-9) for f in fractions]
    units = units_of(items, reading, min(wanted))
    if len(units) < len(fractions) + 1:
        raise TextError(
            f"{len(units)} groups are too few to hold out {len(fractions)} sets; give --valid and --test, or another "
            "--group"
        )
    left = Counter(unit.label for unit in units)
    single = sorted(label for label, count in left.items() if count == 1 and label)
    if single and len(left) > 1:
        reading.add_note(
            Message(
                "{n} classes with one example are in the training set alone: {names}",
                n=len(single),
                names=listed([shown(label) for label in single[:5]]) + (" …" if len(single) > 5 else ""),
            )
        )
    order = _interleaved(units)
    found: list[list[int]] = []
    taken: set[int] = set()
    for k, want in enumerate(wanted):
        places: list[int] = []
        for at in _evenly(order, taken, want, units):
            unit = units[at]
            if len(places) >= want or len(units) - len(taken) <= len(wanted) - k:
                break
            if left[unit.label] <= 1 or (len(places) + len(unit.places) > 1.5 * want + 1 and places):
                continue
            left[unit.label] -= 1
            taken.add(at)
            places += unit.places
        if not places:
            raise TextError(
                f"{len(items)} examples of {len(left)} classes are too few to hold some out; give --valid and --test"
            )
        shuffled = np.random.default_rng(0).permutation(len(places))  # so that any part of a set is a sample of it
        found.append([sorted(places)[int(k)] for k in shuffled])
    return found


def _interleaved(units: Sequence[Unit]) -> list[int]:
    """Return the units in random order within each class, one class after the other.

    Files are often sorted: a run of lines is no sample. The draw is the same for every seed of training.
    """
    random = np.random.default_rng(0).permutation(len(units))
    return [int(k) for k in sorted(random, key=lambda k: units[int(k)].label)]


def _evenly(order: Sequence[int], taken: set[int], want: int, units: Sequence[Unit]) -> list[int]:
    """Return the free units, first those at equal distances of the order by class, so that every class has its share,
    and then those between them."""
    free = [k for k in order if k not in taken]
    total = sum(len(units[k].places) for k in free)
    count = max(min(round(len(free) * want / max(total, 1)), len(free)), 1)
    step = len(free) / count
    first = [free[int(step * (k + 0.5))] for k in range(count)]
    chosen = {*first}
    return first + [k for k in free if k not in chosen]


def _folds(items: Sequence[Any], n: int, reading: Reading) -> list[list[int]]:
    """Return the places of each of n folds; every class and, as far as groups allow, every fold has its share."""
    units = units_of(items, reading, -(-len(items) // n))
    if len(units) < n:
        raise TextError(f"{len(units)} groups are too few for {n} folds; take fewer --folds, or another --group")
    folds: list[list[int]] = [[] for _ in range(n)]
    order = _interleaved(units)
    if all(len(unit.places) == 1 for unit in units):
        for at, k in enumerate(order):
            folds[at % n] += units[k].places
        return folds
    for k in sorted(order, key=lambda k: -len(units[k].places)):  # the largest first, into the smallest fold
        min(folds, key=len).extend(units[k].places)
    return folds


def _note_shared(train: Sequence[Any], held: Sequence[Any], reading: Reading) -> None:
    """Report held-out examples in files of their own that are training examples too."""
    known = {input_of(item) for item in train}
    shared = sum(input_of(item) in known for item in held)
    if shared:
        reading.add_note(
            Message(
                "{n} of {total} validation examples are training examples too",
                n=f"{shared:,}",
                total=f"{len(held):,}",
            )
        )


def check_classes(items: Sequence[Any]) -> None:
    """Raise TextError for a training set of one class, of which nothing can be learned."""
    labels = Counter(item.label for item in items)
    if len(labels) == 1 and items:
        raise TextError(
            Message(
                "all {n} training examples have the label {label}: a classifier needs at least two classes",
                n=f"{len(items):,}",
                label=shown(next(iter(labels))),
            )
        )
