"""Every door of the package that something from outside comes through, with a few small inputs that pass it.

A door is called with bytes and a folder of its own, and returns, or raises an error of recur's tree. None of them
executes a file: cells are named, never read.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import json
import math
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from campaigns.mutate import VALUES
from campaigns.samples import ARPA, LABELLED, LABELLED_CSV, PANEL, SPECS, TABLE, TOML, VOCAB, WAYS
from recur.baselines.ngram import read_arpa
from recur.cells import make_cell
from recur.data.encodings import detect_encoding
from recur.data.images import read_image, read_images
from recur.data.reading import Reading
from recur.data.series.panel import fill
from recur.data.series.reading import SeriesColumns, parse_panel, read_panel
from recur.data.signals import inspect_signals, read_signals
from recur.data.text import (
    Corpus,
    Subwords,
    TagColumns,
    Vocab,
    fit_vocab,
    layout_note,
    read_labelled,
    read_pairs,
    read_tagged,
    read_trees,
    read_words,
    recognise,
)
from recur.data.text.corpus import normalised
from recur.data.text.labelled import read_inputs
from recur.data.text.recognition import has_columns
from recur.data.text.tables import read_table
from recur.data.text.treebanks import parse_tree, restructured
from recur.data.text.vocabulary import read_vectors
from recur.decoding import SamplingOptions
from recur.errors import RecurError
from recur.models.options import parse_embedding
from recur.nn.options import Init, parse_scheme
from recur.ops.bptt import BPTT
from recur.ops.cuda import tuning
from recur.options import check_device
from recur.runs import read_json, read_jsonl
from recur.runs.manifest import Fingerprint, Manifest
from recur.runs.weights import from_bytes, to_bytes
from recur.studio.equations import EquationNetwork, read_equations
from recur.studio.equations.python_cell import python_cell
from recur.studio.equations.textbook import EXAMPLES
from recur.studio.runs import measurements
from recur.tasks import config_text, make_options, options_class, read_config, task_names
from recur.tasks.common.options import TeacherForcing
from recur.training.optim import Schedule
from recur.training.sweeps.record import parse_sweep_record
from recur.training.sweeps.search import resolve_search


class Door(NamedTuple):
    name: str
    seeds: Sequence[bytes]
    """Small inputs, most of which pass."""
    open: Callable[[bytes, Path], object]
    weight: int = 1
    """How often it is tried, beside the others."""


class NotTheSameError(Exception):
    """An input passed, and did not come out as it went in."""


def _text_of(data: bytes) -> str:
    """Any string, halves of surrogate pairs among them."""
    return data.decode("utf-8", "surrogateescape")


def _file(name: str, read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    def open_door(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(str(path))

    return open_door


# Options ----------------------------------------------------------------------------------------------------------


def _toml(data: bytes, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_bytes(data)
    fields = read_config(path)
    task = fields.pop("task", "language")
    if ".py" not in str(fields.get("cell", "")):
        _survive(make_options(task, fields), folder)  # type: ignore[arg-type]


def _options(data: bytes, folder: Path) -> None:
    """Some fields of a task, each with a value that the bytes choose."""
    draw = random.Random(data)
    task = draw.choice(task_names())
    names = options_class(task).names()
    fields: dict[str, object] = {}
    for name in draw.sample(names, draw.choice((1, 1, 2, 3))):
        fields[name] = _text_of(data) if draw.random() < 0.3 else draw.choice(VALUES)
    if ".py" not in str(fields.get("cell", "")):
        _survive(make_options(task, fields), folder)


def _survive(options: Any, folder: Path) -> None:
    """What passed the check is written to a file and read from it again, the same."""
    (folder / "again.toml").write_text(config_text(options, folder), encoding="utf-8")
    fields = read_config(folder / "again.toml")
    again: Any = make_options(str(fields.pop("task")), fields)
    plain = {"texts": (), "valid": (), "test": (), "from_": (), "vectors": None}
    paths = {name: value for name, value in plain.items() if name in options.names()}
    if options.changed(**paths) != again.changed(**paths):
        raise NotTheSameError(f"{options} came back from its file as {again}")


def _specs(data: bytes, _: Path) -> None:
    """The small languages of options, each of which reads the same text."""
    text = _text_of(data)
    for parse in (Schedule_, Teacher_, BPTT.parse, parse_scheme, Init_, parse_embedding, check_device):
        try:
            parse(text)
        except RecurError:
            continue


def Schedule_(text: str) -> None:  # noqa: N802
    schedule = Schedule(text, 3)
    for step in range(4):
        schedule(step, step, step / 4)
        schedule.measured(1.0 + step)


def Teacher_(text: str) -> None:  # noqa: N802
    teacher = TeacherForcing.parse(text)
    if not all(0 <= teacher.probability(step, 0.5) <= 1 for step in (0, 1, 10**6)):
        raise NotTheSameError(f"{teacher} is no probability")


def Init_(text: str) -> None:  # noqa: N802
    _ = Init(state=text).sigma


def _cells(data: bytes, _: Path) -> None:
    text = _text_of(data)
    if ".py" not in text:
        make_cell(text)


_LOGITS = torch.linspace(-3, 3, 7)


def _choices(data: bytes, _: Path) -> None:
    draw = random.Random(data)
    fields = {name: draw.choice(VALUES) for name in ("temperature", "top_k", "top_p", "min_p") if draw.random() < 0.5}
    p = SamplingOptions(**fields).probabilities(_LOGITS)  # type: ignore[arg-type]
    if not bool(torch.isfinite(p).all()) or not math.isclose(float(p.sum()), 1, rel_tol=1e-6):
        raise NotTheSameError(f"{fields} gives {p}")


# Texts ------------------------------------------------------------------------------------------------------------


def _corpus(name: str) -> None:
    parts = Corpus.of(name).split()
    for options in ({}, {"token": "word"}, {"token": "word", "punctuation": True, "lower": True}):
        vocab = fit_vocab(parts[0], **options)
        ids = vocab.encode_corpus(parts[0])
        if not options and vocab.decode(ids) != parts[0].text():
            raise NotTheSameError("characters do not come back")


def _strings(data: bytes, _: Path) -> None:
    text = _text_of(data)
    _letters().encode(normalised(text))
    _letters().unknown_tokens(text)


@functools.cache
def _letters() -> Vocab:
    return Vocab.from_json(VOCAB[0].decode())


def _tagged(name: str) -> None:
    """As training reads it, and as prediction does."""
    for columns in (TagColumns(), TagColumns("form", "feats"), TagColumns("1", "2")):
        with suppress(RecurError):
            read_tagged([name], columns)
    if has_columns(name):
        list(read_words(name))
    read_tagged([name])


_CONLLU = b"# c\n1-2\tdel" + b"\t_" * 8 + b"\n1\tde\tde\tADP\tE\tA=b\t0\troot\t_\t_\n1.1\tx" + b"\t_" * 8 + b"\n"
_TAGGED = (b"the\tDT\ndog\tNN\n\n# c\na B-NP\n", b"-DOCSTART- O\n\nEU B-ORG\n", _CONLLU)


def _trees(name: str) -> None:
    for tree in read_trees([name]):
        if parse_tree(tree.bracketed()).words != tree.words:
            raise NotTheSameError("a tree does not come back")
        restructured(tree, "balanced")


def _pairs(data: bytes, folder: Path) -> None:
    """A table, or two files with a zero byte between them."""
    parts = data.split(b"\0", 1)
    names = ["a.tsv"] if len(parts) == 1 else ["b.txt", "c.txt"]
    for name, part in zip(names, parts, strict=True):
        (folder / name).write_bytes(part)
    read_pairs([str(folder / name) for name in names])


def _series(data: bytes, _: Path) -> None:
    for columns in (
        SeriesColumns(),
        SeriesColumns(("y",), future=("z",)),
        SeriesColumns(id="a"),
        SeriesColumns(layout="rows"),
    ):
        try:
            panel = parse_panel(_text_of(data).split("\n"), "table.csv", columns)
        except RecurError:
            continue
        for one in panel.series:
            length = len(one) + 3
            made = (fill(one.values, 4), fill(one.future), panel.calendar(one, length), one.values[one.observed])
            if not all(np.isfinite(part).all() for part in made):
                raise NotTheSameError("what was read cannot be used")
            if panel.frequency and len(panel.dates(one, 0, length)) != length:
                raise NotTheSameError("dates do not go on")


def _gzipped(data: bytes, folder: Path) -> None:
    """Bytes that may be a .gz, and a .gz of them."""
    for name, content in (("a.txt.gz", data), ("b.txt.gz", gzip.compress(data, 1))):
        (folder / name).write_bytes(content)
        try:
            recognise([str(folder / name)])
            Corpus.of(str(folder / name)).text()
        except RecurError:
            continue


def _arpa(name: str) -> None:
    model = read_arpa(name)
    model.evaluate("a b\nc")
    model.sample(3)


def _vectors(name: str) -> None:
    found, rows = read_vectors(name, ["the", "A", "<eos>", "é"])
    if len(found) != len(rows) or not np.isfinite(rows).all():
        raise NotTheSameError("what was read are no vectors")


def _vocabulary(name: str) -> None:
    vocab = Vocab.load(Path(name))
    vocab.predictable()
    vocab.decode(vocab.encode("ab\nc é"))
    if Vocab.from_json(vocab.to_json()) != vocab or not vocab.digest:
        raise NotTheSameError("a vocabulary does not come back")


def _pieces(data: bytes, folder: Path) -> None:
    """A vocabulary whose sentencepiece model is these bytes, and whose tokens are what they were before."""
    fields = {"tokenizer": {"kind": "subword", "model": base64.b64encode(data).decode()}}
    (folder / "vocab.json").write_text(
        json.dumps({**fields, "tokens": _pieces_of(), "counts": [1] * len(_pieces_of())})
    )
    _vocabulary(str(folder / "vocab.json"))


@functools.cache
def _subwords() -> Subwords:
    return Subwords.train(["a network reads words and writes words", "words of a text"] * 20, 290, "bpe")


@functools.cache
def _pieces_of() -> list[str]:
    return _subwords().pieces()


def _sweep() -> bytes:
    trial = {
        "number": 0,
        "params": {"lr": 0.5},
        "state": "complete",
        "value": 0.25,
        "measured": [0.5],
        "seconds": 1.5,
    }
    rates = ["Between", {"low": 0.1, "high": 1.0, "log": True}]
    asked = {"task": "classify", "options": {}, "search": {"lr": rates}, "metric": "valid_error", "seed": 0}
    return json.dumps({"format": 1, **asked, "pruner": "median", "trials": [{**trial, "why": ""}]}).encode()


def _search(data: bytes, folder: Path) -> None:
    task, _, asked = _text_of(data).partition(" ")
    resolve_search(task, [asked], {})


def _json(data: bytes, folder: Path) -> None:
    (folder / "a.json").write_bytes(data)
    read_json(folder / "a.json")
    read_jsonl(folder / "a.json")
    (folder / "metrics.jsonl").write_bytes(data)
    measurements(folder, "loss")


def _tensors(data: bytes, folder: Path) -> None:
    """A checkpoint; and weights whose header the list of runs reads."""
    (folder / "model.safetensors").write_bytes(data)
    measurements(folder, "loss")
    from_bytes(data, folder / "model.safetensors")


def _manifest() -> bytes:
    digest = hashlib.sha256(b"").hexdigest()
    found = Manifest("language", ["vocab"], {"config.toml": [digest]}, {"texts": [Fingerprint("a.txt", 1, digest)]})
    return found.to_json()


# Images -----------------------------------------------------------------------------------------------------------


def _npz(**arrays: object) -> bytes:
    made = io.BytesIO()
    np.savez(made, **arrays)  # type: ignore[arg-type]
    return made.getvalue()


def _npy(array: object) -> bytes:
    made = io.BytesIO()
    np.save(made, array)  # type: ignore[arg-type]
    return made.getvalue()


def _png() -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(made, "png")
    return made.getvalue()


def _images(data: bytes, folder: Path) -> None:
    for name in ("a.npy", "a.pgm", "a.png") if data[:2] != b"PK" else ("a.npz",):
        (folder / name).write_bytes(data)
        try:
            for labelled in (True, False) if name == "a.npz" else ():
                read_images([str(folder / name)], labelled)
            if name != "a.npz":
                read_image(folder / name)
        except RecurError:
            continue


# Sequences of numbers ---------------------------------------------------------------------------------------------


def _signals(data: bytes, folder: Path) -> None:
    """An archive or an array; or a table, and with it in a folder a list of labels of the same bytes."""
    kind = "npz" if data[:2] == b"PK" else "npy" if data[:1] == b"\x93" else "csv"
    place = folder / "signals"
    place.mkdir(exist_ok=True)
    (place / f"a.{kind}").write_bytes(data)
    if kind == "csv":
        (place / "labels.csv").write_bytes(data)
    try:
        for name in (place / f"a.{kind}", place):
            with suppress(RecurError):
                inspect_signals(str(name))
                for signal in read_signals([str(name)], labelled=False):
                    if not np.isfinite(signal.values).all() or not signal.values.size:
                        raise NotTheSameError("what was read cannot be scaled")
    finally:
        shutil.rmtree(place)


def _tables(data: bytes, folder: Path) -> None:
    """A table of each kind of file, and what the readers of tasks make of it."""
    kinds = {b"PK": "xlsx", b"PAR1": "parquet", b"ARROW1": "arrow", b"{": "jsonl", b"[": "json"}
    ending = next((kind for mark, kind in kinds.items() if data.startswith(mark)), "csv")
    path = folder / f"table.{ending}"
    path.write_bytes(data)
    name, reading = str(path), Reading(on_bad_rows="skip")
    for read in (
        lambda: read_table(name, reading),
        lambda: recognise([name]),
        lambda: read_labelled([name], reading=reading),
        lambda: read_pairs([name], reading),
        lambda: read_tagged([name], reading=reading),
        lambda: read_inputs(name, reading, ("cat",)),
        lambda: read_panel([name], reading=reading),
        lambda: Corpus.of(name).text(),
    ):
        with suppress(RecurError):
            read()


def _encodings(data: bytes, _: Path) -> None:
    for whole in (False, True):
        encoding = detect_encoding(data, whole)
        marked = data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff"
        if whole and encoding is not None and not marked:  # a mark decides, even if what follows is damaged
            data.decode(encoding)


def _workbook() -> bytes:
    """A workbook of two columns, with a date and a shared text."""
    made = io.BytesIO()
    parts = {
        "xl/workbook.xml": '<workbook xmlns:r="r"><sheets><sheet name="a" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="rId1" Target="sheet.xml"/></Relationships>',
        "xl/styles.xml": '<styleSheet xmlns="s"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
        "xl/sharedStrings.xml": "<sst><si><t>text</t></si><si><t>label</t></si><si><r><t>a b</t></r></si></sst>",
        "xl/sheet.xml": (
            '<worksheet xmlns="s"><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
            '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2" s="1"><v>45000.5</v></c></row></sheetData></worksheet>'
        ),
    }
    with zipfile.ZipFile(made, "w") as archive:
        for part, text in parts.items():
            archive.writestr(part, f'<?xml version="1.0"?>{text}')
    return made.getvalue()


TABLES = (
    b"Datum;Umsatz\n31.12.2023;1.234,5\n01.01.2024;12,5\n",
    b'day,y\n1/31/2024,"1,234.5"\n2/1/2024,7\n',
    b'{"text": "a b", "label": ["cat", "dog"]}\n{"tokens": ["a"], "tags": ["O"]}\n',
    b'[{"source": "a", "target": "b", "deep": {"x": [1, null, true]}}]',
    "评论,情感\n很好,好\n".encode("gb18030"),
    "a|b\n1|2\n".encode("utf-16"),
)


def _labelled(name: str) -> object:
    return layout_note([name]), read_labelled([name]), read_labelled([name], ("cat", "dog"))


def _ways(data: bytes, folder: Path) -> object:
    found = tuning.loads(data)
    again = tuning.loads(tuning.dumps(found))
    if (again.device, again.entries) != (found.device, found.entries):
        raise NotTheSameError("a table that was written and read again is another one")
    return [found.nearest(kind._replace(H=kind.H + 1)) for kind in found.entries]


def _equations(data: bytes, folder: Path) -> None:
    """Read, carried along two symbols, and written as a cell, which is not executed."""
    equations = read_equations(data.decode("utf-8", "replace"))
    network = EquationNetwork(equations, 2, 1, 2)
    network.run(network.toy_weights(0), np.eye(2), [1, 0])
    compile(python_cell(equations).source, "typed.py", "exec")


@functools.cache
def doors() -> tuple[Door, ...]:
    """All of them."""
    images = np.arange(24).reshape(2, 3, 4)
    return (
        Door("toml", TOML, _toml, 2),
        Door("options", SPECS, _options, 4),
        Door("specs", SPECS, _specs, 2),
        Door("cells", (b"gru", b"elman:activation=relu", b"leaky:alpha=0.5", b"slstm:heads=2", b"deep"), _cells),
        Door("choices", SPECS, _choices),
        Door(
            "text",
            (b"a book\nof words, and\nmore words\n" * 3, "é ü 漢字 d\u0323\u0307".encode()),
            _file("a.txt", _corpus),
        ),
        Door("equations", tuple(text.encode() for text in EXAMPLES.values()), _equations, 2),
        Door("strings", (b"hello", "e\u0301 漢".encode(), b"\xed\xa0\x80"), _strings),
        Door("labelled", LABELLED, _file("a.tsv", _labelled)),
        Door("labelled csv", LABELLED_CSV, _file("a.csv", _labelled)),
        Door("tagged", _TAGGED, _file("a.conll", _tagged)),
        Door("pairs", (b"a b\tc d\ne\tf\n", b"a\nb\0c\nd\n"), _pairs),
        Door("trees", (b"(3 (2 It) (4 (2 's) (4 great)))\n(1 a)\n",), _file("a.txt", _trees)),
        Door("series", (*TABLE, *PANEL), _series, 2),
        Door("tables", (*TABLES, _workbook()), _tables, 3),
        Door("encodings", TABLES, _encodings),
        Door(
            "recognise",
            (*TABLE, b"cat\ta\ncat\tb\n", b"(1 (2 a) (3 b))\n", b"a\tO\nb\tO\n\nc\tO\nd\tO\n"),
            _file("a.csv", lambda name: recognise([name])),
        ),
        Door(
            "vectors",
            (b"2 3\nthe 0.5 -1 2e-3 \na 1 2 3 \n", "the 1\n. . 2\n</s> 3\ne\u0301 4".encode(), b"2 2\nthe \0\1\2\3"),
            _file("v.txt", _vectors),
        ),
        Door("gzip", (b"some text\n", gzip.compress(b"some text\n" * 9)), _gzipped),
        Door("arpa", ARPA, _file("a.arpa", _arpa), 2),
        Door("vocabulary", VOCAB, _file("vocab.json", _vocabulary), 2),
        Door("pieces", (_subwords().model,), _pieces),
        Door("sweep", (_sweep(),), lambda data, folder: parse_sweep_record(data, "sweep.json")),
        Door("ways", WAYS, _ways),
        Door("manifest", (_manifest(),), lambda data, folder: Manifest.from_json(data, "manifest.json")),
        Door("tensors", (to_bytes({"w": torch.ones(2, 3)}, {"step": 1, "loss": 0.5}),), _tensors),
        Door("search", (b"classify lr=0.001:0.1:log", b"tag cell=gru,lstm", b"forecast hidden"), _search),
        Door("json", (b'{"step": 1, "loss": 2.5}\n{"step": 2}\n', b'{"name": "x", "value": 3.5}'), _json),
        Door(
            "images",
            (
                *(_npz(x=images, y=np.array([0, 1])), _npz(x_train=images, y_train=np.array(["a", "b"]))),
                *(_npy(images[0]), _npy(images[0].astype(float)), _png()),
                *(b"P2\n# c\n2 2\n255\n0 1 2 3\n", b"P6 1 1 255 abc", b"P5 1 1 65535\nab"),
            ),
            _images,
            2,
        ),
        Door(
            "signals",
            (
                *(_npz(x=images, y=np.array([0, 1])), _npz(x=np.arange(5.0), lengths=np.array([2, 3]), y=np.arange(5))),
                _npz(x_test=np.ones((2, 3)), y_test=np.array(["a", "b", "b"]), y_lengths_test=np.array([1, 2])),
                *(_npy(images[0]), _npy(np.ones(4)), b"1,2\n3,4\n", b"x,tag\n1,A\n2,B\n", b"file,label\na,b c\n"),
            ),
            _signals,
            2,
        ),
    )


def in_turn() -> list[Door]:
    """Doors in the order in which attempts take them: each as often as it weighs, none twice in a row."""
    waiting = [(k, door) for door in doors() for k in range(door.weight)]
    return [door for _, door in sorted(waiting, key=lambda pair: pair[0])]
