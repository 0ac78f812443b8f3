"""Inputs of a few bytes that stand for many items: every reader refuses them in one line."""

from __future__ import annotations

import gzip
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

import recur
from recur.data.images import read_image, read_images
from recur.data.signals import read_signals
from recur.data.text import Corpus, Vocab, fit_vocab, read_labelled, structure_of
from recur.data.text.vocabulary import read_vectors
from recur.errors import OptionError, RunError, TextError
from recur.options.options import parse_toml
from recur.runs import read_jsonl, read_tail
from recur.runs.manifest import Log, Manifest, parse_jsonl
from recur.runs.safe_dir import SafeDir
from recur.runs.weights import from_bytes, read_about, to_bytes
from recur.studio.runs import measurements
from recur.training.sweeps.record import parse_sweep_record
from recur.utils.limits import FREE_ITEMS, FREE_LABELS, LOG_RECORDS, json_values

SOURCE = Path(recur.__file__).parent
MARKS = "\u0301" * 1000


# Images ----------------------------------------------------------------------------------------------------------


def test_postscript_that_is_called_png_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: started.append(a))
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(TextError, match="a.png cannot be read as an image"):
        read_image(tmp_path / "a.png")
    assert started == []


def test_pillow_is_called_with_a_list_of_formats_everywhere() -> None:
    calls = [line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines() if "Image.open(" in line]
    assert calls
    assert all("formats=FORMATS" in line for line in calls)


@pytest.mark.parametrize(("mode", "order"), [("I;16", "<u2"), ("I;16B", ">u2")])
def test_grey_tiff_of_16_bits_keeps_its_numbers(mode: str, order: str, tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [1000, 40000, 65535]], np.uint16)
    Image.frombytes(mode, (3, 2), values.astype(order).tobytes()).save(tmp_path / "a.tif")
    found = read_image(tmp_path / "a.tif")
    assert found.dtype == np.uint16
    assert found[..., 0].tolist() == values.tolist()


def test_an_image_of_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    Image.new("LAB", (2, 2)).save(tmp_path / "a.tif")
    with pytest.raises(
        TextError, match=r"a.tif: expected a grey or colour image .* got the mode LAB; save it as a PNG"
    ):
        read_image(tmp_path / "a.tif")


def test_a_jpeg_of_many_scans_is_refused(tmp_path: Path) -> None:
    """The decoder visits all pixels in every scan."""
    Image.new("L", (8, 8)).save(tmp_path / "a.jpg", progressive=True)
    assert read_image(tmp_path / "a.jpg").shape == (8, 8, 1)
    content = (tmp_path / "a.jpg").read_bytes()
    scan = content[content.rindex(b"\xff\xda") : content.rindex(b"\xff\xd9")]
    (tmp_path / "a.jpg").write_bytes(content[:-2] + scan * 300 + b"\xff\xd9")
    with pytest.raises(TextError, match="expected at most 256 scans, got 3"):
        read_image(tmp_path / "a.jpg")


def test_netpbm_text_is_read_without_an_object_per_number(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P2 3 1 255\n1 # one\n 22\n" + b"9" * 40)
    assert read_image(tmp_path / "a.pgm").reshape(-1).tolist() == [1, 22, 2**62]
    (tmp_path / "b.pgm").write_bytes(b"P2 1 1 255\n-1")
    with pytest.raises(TextError, match="expected whole numbers between white space"):
        read_image(tmp_path / "b.pgm")


def packed(path: Path, **arrays: np.ndarray[Any, Any]) -> str:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return str(path)


def test_an_archive_of_more_images_than_its_size_allows_is_refused(tmp_path: Path) -> None:
    n = 2 * FREE_ITEMS
    name = packed(tmp_path / "a.npz", x=np.zeros((n, 1, 1), np.uint8), y=np.zeros(n, np.uint8))
    assert (tmp_path / "a.npz").stat().st_size < 1000
    with pytest.raises(TextError, match=r"a.npz: expected at most 65,\d+ images, got 131,072; take fewer, or save it"):
        read_images([name])
    np.savez(tmp_path / "b.npz", x=np.zeros((n, 8, 1), np.uint8), y=np.zeros(n, np.uint8))
    assert len(read_images([str(tmp_path / "b.npz")])) == n


def test_a_compressed_size_that_an_archive_only_claims_allows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recur.data.images.NPZ_BYTES", 1 << 16)
    name = packed(tmp_path / "a.npz", x=np.zeros((2, 1024, 1024), np.uint8), y=np.zeros(2, np.uint8))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[(at := content.index(b"PK\x01\x02")) + 20 : at + 24] = struct.pack("<I", 1 << 30)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(TextError, match="unpacks to more than 100 times its size"):
        read_images([name])


def test_an_archive_of_many_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for k in range(1001):
            archive.writestr(f"{k}.npy", b"")
    with pytest.raises(TextError, match="expected at most 1,000 arrays, got 1,001"):
        read_images([str(tmp_path / "a.npz")])


def test_images_that_fill_half_of_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small files that unpack to large images."""
    monkeypatch.setattr("recur.data.images.memory", lambda: 2.0 * 250)
    for name in "abc":
        Image.new("L", (10, 10)).save(tmp_path / f"{name}.png")
    with pytest.raises(TextError, match="c.png: the images take more than half of this machine's memory"):
        read_images([str(tmp_path)], labelled=False)


# Sequences of numbers --------------------------------------------------------------------------------------------


def test_sequences_and_labels_are_counted(tmp_path: Path) -> None:
    n = 2 * FREE_ITEMS
    name = packed(tmp_path / "a.npz", x=np.zeros((n, 1), np.uint8), y=np.zeros(n, np.uint8))
    with pytest.raises(TextError, match="expected at most 65,[0-9]+ sequences, got 131,072"):
        read_signals([name])
    labels = np.zeros((2, FREE_LABELS), np.int64)
    name = packed(tmp_path / "b.npz", x=labels.astype(np.uint8), y=labels)
    with pytest.raises(TextError, match="expected at most 1,[0-9,]+ labels, got 2,097,152"):
        read_signals([name])


# Text ------------------------------------------------------------------------------------------------------------


def test_a_run_of_marks_is_refused_by_word_vectors(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(f"the 1 2\ne{MARKS} 3 4\n")
    with pytest.raises(TextError, match=r"v.txt:2 is not text: it has more than 256 accents or other marks in a row"):
        read_vectors(str(tmp_path / "v.txt"), ["the"])


def test_one_function_normalises_text_of_any_length() -> None:
    """Normalisation takes quadratic time on a run of marks: others normalise what they have measured before."""
    bounded = {"studio/loaded_model.py", "studio/equations/parser.py", "studio/equations/python_cell.py"}
    calls = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"unicodedata\.(normalize|is_normalized)\(", path.read_text())
    }
    assert calls == {"data/text/tokenizers.py"} | bounded


def test_a_gz_of_many_short_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * (1 << 19)))
    with pytest.raises(TextError, match="unpacks to more than 30 times its size"):
        read_labelled([str(tmp_path / "a.tsv.gz")])


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.text.tokenizers.LINE", 99)
    (tmp_path / "a.tsv").write_text("a\tb\na\t" + "b" * 98)
    with pytest.raises(TextError, match="a.tsv: a line: expected at most 99 characters, got 100; put one example on"):
        read_labelled([str(tmp_path / "a.tsv")])


def test_a_word_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.text.tokenizers.LINE", 99)
    (tmp_path / "a.txt").write_text("b" * 100)
    with pytest.raises(TextError, match="a word: expected at most 99 characters, got 100; .* use --token char"):
        fit_vocab(Corpus.of(str(tmp_path / "a.txt")), "word")


def test_chains_of_many_words_are_refused() -> None:
    assert len(structure_of("left", 10_000)) == 19_999
    with pytest.raises(TextError, match="expected at most 10,000 levels, got 10,001; use --structure balanced"):
        structure_of("left", 10_001)
    with pytest.raises(TextError, match="expected at most 262,144 nodes"):
        structure_of("balanced", 1 << 18)


# JSON, TOML and tensors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["0", "[]", "[[], {}]", '{"a": [1, 2, {"b": null}], "c": "x,y:z"}'])
def test_json_values_is_an_upper_bound(content: str) -> None:
    def count(value: Any) -> int:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(count, inside))

    assert json_values(content) == json_values(content.encode()) >= count(json.loads(content))


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda text: Vocab.from_json(text, "a.json"), TextError),
        (lambda text: Manifest.from_json(text.encode(), "a.json"), RunError),
        (lambda text: parse_sweep_record(text.encode(), "a.json"), RunError),
    ],
)
def test_json_of_many_values_is_not_parsed(
    read: Callable[[str], object], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recur.data.text.vocabulary.VOCABULARY_VALUES", 1 << 22)
    monkeypatch.setattr(json, "loads", lambda content: pytest.fail("it was parsed"))
    with pytest.raises(error, match=r"a\.json"):
        read("[" + "[]," * (1 << 22) + "[]]")


def test_a_log_of_many_lines_is_bounded(tmp_path: Path) -> None:
    content = b'{"step": 1}\n' + b"{}\n" * (2 * LOG_RECORDS) + b'{"step": 2}\n'
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == LOG_RECORDS
    assert read_tail(tmp_path / "metrics.jsonl")[-1] == {"step": 2}
    assert len(read_tail(tmp_path / "metrics.jsonl", 100)) == 30, "whole lines of the last 100 bytes"
    with pytest.raises(RunError, match=r"metrics.jsonl: expected at most 65,536 lines .* got more"):
        Log(SafeDir(tmp_path), "metrics.jsonl").read()


def test_a_log_of_many_values_or_long_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.runs.manifest.JSON_VALUES", 100)
    monkeypatch.setattr("recur.runs.manifest.LOG_LINE", 200)
    many = b'{"a": [' + b"0," * 40 + b"0]}\n"
    assert len(parse_jsonl(many * 9)) == 2
    assert parse_jsonl(b'{"a": "' + b"x" * 300 + b'"}\n{"b": 1}\nno\n[]\n{"c"') == [{"b": 1}]


def test_the_list_of_runs_reads_the_end_of_a_log_and_the_best_weights(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(
        b'{"step": 1, "valid_loss": 0.5}\n' + b"{}\n" * (1 << 20) + b'{"step": 9, "valid_loss": 2.0}\n'
    )
    found = measurements(tmp_path, "valid_loss")
    assert (found["step"], found["best"]) == (9, 2.0)
    (tmp_path / "model.safetensors").write_bytes(to_bytes({"w": torch.ones(2)}, {"step": 1, "valid_loss": 0.5}))
    assert measurements(tmp_path, "valid_loss")["best"] == 0.5


def test_the_header_of_a_tensor_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = to_bytes({"w": torch.ones(2)}, {"step": 3})
    (tmp_path / "a.safetensors").write_bytes(content)
    assert read_about(SafeDir(tmp_path), "a.safetensors") == {"step": 3}
    assert from_bytes(content, tmp_path / "a.safetensors")[1] == {"step": 3}
    monkeypatch.setattr("recur.runs.weights.TENSOR_HEADER", 9)
    with pytest.raises(RunError, match="a.safetensors: expected at most 9 bytes of a header"):
        from_bytes(content, tmp_path / "a.safetensors")
    assert read_about(SafeDir(tmp_path), "a.safetensors") == {}
    assert read_about(SafeDir(tmp_path), "none.safetensors") == {}


@pytest.mark.parametrize(
    "key", ["a." * 40_000 + "a = 1", "[" + '"b c" . ' * 40_000 + "b]", "x = {" + "a." * 40 + "a=1}"]
)
def test_a_key_of_many_parts_is_refused(key: str) -> None:
    with pytest.raises(OptionError, match="expected keys of at most 32 parts, got a longer one"):
        parse_toml(key.encode(), Path("a.toml"))


def test_a_list_of_many_files_is_no_key_of_many_parts() -> None:
    files = [f"a.b/c.{k}.txt" for k in range(1000)]
    assert parse_toml(f"texts = {json.dumps(files)}".encode(), Path("a.toml")) == {"texts": files}


def test_a_sentencepiece_model_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.text.tokenizers.PIECES_BYTES", 9)
    with pytest.raises(TextError, match="a sentencepiece model: expected at most 9 bytes, got 10"):
        recur.data.text.Subwords(b"0123456789").pieces()
