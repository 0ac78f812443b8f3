"""Word vectors from files: every format gives the same rows, and what is wrong with one is said in a line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from recur.data.text import vocabulary
from recur.data.text.vocabulary import first_tokens, read_vectors, vectors_width
from recur.errors import TextError

ROWS = {"the": [0.5, -1.25, 3e-05], "cat": [1.0, 2.0, 3.0], "Paris": [-1.0, 0.0, 0.25], "été": [4.0, 5.0, 6.0]}
LINES = [f"{token} {' '.join(map(str, row))}" for token, row in ROWS.items()]
FORMATS = {
    "glove": "\n".join(LINES),
    "word2vec": f"{len(ROWS)} 3\n" + "\n".join(LINES) + "\n",
    "fasttext": f"{len(ROWS)} 3\n" + "".join(f"{line} \n" for line in LINES),
    "windows": "\r\n".join(LINES) + "\r\n",
    "tabs": "\n".join(line.replace(" ", "\t") for line in LINES),
    "blank lines": "\n\n".join(LINES),
    "decomposed": "\n".join(LINES).replace("é", "e\u0301"),
}


def written(tmp_path: Path, content: str | bytes, name: str = "vectors.txt") -> str:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(tmp_path / name)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_all_formats_are_read_alike(layout: str, packed: bool, tmp_path: Path) -> None:
    content = FORMATS[layout].encode()
    name = written(tmp_path, gzip.compress(content) if packed else content, "v.txt.gz" if packed else "v.txt")
    assert vectors_width(name) == 3
    found, rows = read_vectors(name, ["été", "dog", "cat", "Paris", "the"])
    assert found == [0, 2, 3, 4]
    expected = np.array([ROWS[token] for token in ("été", "cat", "Paris", "the")], np.float32)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, expected)


def test_a_token_takes_its_own_row_or_that_in_lower_case(tmp_path: Path) -> None:
    name = written(tmp_path, "cat 1\nThe 2\nthe 3\nCAT 4\n")
    found, rows = read_vectors(name, ["The", "Cat", "cat", "THE", "paris"])
    assert found == [0, 1, 2, 3]
    assert rows[:, 0].tolist() == [2, 1, 1, 3]


def test_the_first_of_two_rows_counts_and_special_tokens_are_known_by_their_other_names(tmp_path: Path) -> None:
    name = written(tmp_path, "a 1\na 2\n</s> 3\n")
    found, rows = read_vectors(name, ["<eos>", "a"])
    assert (found, rows[:, 0].tolist()) == ([0, 1], [3, 1])


def test_a_token_with_spaces_in_it_is_none_of_ours_and_no_error(tmp_path: Path) -> None:
    name = written(tmp_path, "a 1 2\n. . . 3 4\nb 5 6\n")
    assert read_vectors(name, [".", "b"]).rows.tolist() == [[5, 6]]
    assert first_tokens(name, 2) == ["a", ". . ."]


def test_rows_of_tokens_that_are_not_asked_for_are_not_kept(tmp_path: Path) -> None:
    name = written(tmp_path, "a 1 2\nb not numbers\nc 3 4\n")  # and not looked into
    assert read_vectors(name, ["c"]).rows.tolist() == [[3, 4]]


def test_lines_may_lie_across_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "PIECE", 64)
    lines = [f"token{k} {k}.5 {-k}.25" for k in range(100)]
    found, rows = read_vectors(written(tmp_path, "\n".join(lines)), [f"token{k}" for k in range(100)])
    assert found == list(range(100))
    assert rows[:, 0].tolist() == [k + 0.5 for k in range(100)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no vector"),
        ("\n \n", "holds no vector"),
        ("2 3\n", "holds no vector"),
        ("word\n", "a line is a token and its numbers"),
        ("a 1 2\nb 1\n", ":2: a vector of 1 numbers, where the others have 2"),
        ("a 1 2\nb 1 2 3\n", ":2: a vector of 3 numbers, where the others have 2"),
        ("2 5\na 1 2\nb 1 2\n", "says that its vectors have 5 numbers, and the first has 2"),
        ("a 1 2\nb 1 \t\n", ":2: a vector of 1 numbers, where the others have 2"),
        ("a 1 x\n", "a vector of something else than numbers"),
        ("a 1 nan\n", "a vector of something else than numbers"),
        ("a 1 1e39\n", "a vector of something else than numbers"),
        (b"2 2\na \x00\x01\x02\x03\x04\x05\x06\x07\n", "binary format"),
        (b"2 2\n\xff\xfe 1 2\n", "binary format"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(content: str | bytes, says: str, tmp_path: Path) -> None:
    name = written(tmp_path, content)
    with pytest.raises(TextError, match=says) as caught:
        read_vectors(name, ["a", "b"])
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_line_without_an_end_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "PIECE", 64)
    with pytest.raises(TextError, match="is no text"):
        vectors_width(written(tmp_path, "a " + "1 " * 100))


def test_no_file_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no file"):
        vectors_width(str(tmp_path / "none.txt"))
