"""Any text, from anywhere, strictly; and what happens when it cannot be read."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recur.data.text import Corpus, Vocab
from recur.data.text import corpus as corpus_module
from recur.data.text.tokenizers import make_tokenizer
from recur.errors import TextError


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_files_one_after_the_other_never_share_a_line(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", "one\ntwo"), write(tmp_path / "b.txt", "three\n")
    assert Corpus.of(a, b).text() == "one\ntwo\nthree\n"
    assert Corpus.of(a).text() == "one\ntwo"
    assert Corpus.of(a, b).name == f"{a} and 1 more"


def test_a_folder_in_the_order_of_its_paths_without_what_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "b.txt", "b\n")
    write(tmp_path / "a.md", "a\n")
    write(tmp_path / "sub" / "c", "c\n")
    write(tmp_path / "picture.png", b"\x89PNG\0\0")
    write(tmp_path / ".hidden", "no\n")
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"z\n"))
    corpus = Corpus.of(str(tmp_path))
    assert corpus.text() == "a\nb\nc\nz\n"
    assert str(corpus.notes) == "4 files, 1 skipped as not text"


def test_a_corpus_goes_to_another_process_by_the_names_of_its_files(tmp_path: Path) -> None:
    part = Corpus.of(write(tmp_path / "a.txt", "one two three\n" * 9), "pydoc").split()[1]
    assert pickle.loads(pickle.dumps(part)).text() == part.text()
    vocab = Vocab.fit(part, make_tokenizer("char"))
    ids = vocab.encode(part.text())
    assert (pickle.loads(pickle.dumps(vocab)).encode(part.text()) == ids).all(), "also once it was used"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", "/dev/stdin", str(pipe)], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"one\n")
        writer.stdin.close()
        once = Corpus.of(str(pipe))
    assert once.text() == "one\n"
    with pytest.raises(TextError, match="write it to a file first"):
        pickle.dumps(once)


def test_gz(tmp_path: Path) -> None:
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress("今天天气\n".encode()))
    assert Corpus.of(str(path)).text() == "今天天气\n"


def test_what_reading_changes_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "\ufeffa\r\nb\rcafe\u0301\n")
    corpus = Corpus.of(path)
    assert corpus.text() == "a\nb\ncafé\n"
    assert str(corpus.notes) == ("1 file, 1 byte-order mark removed, 2 line ends made \\n, composed (NFC) in 1 pieces")


def test_the_built_in_corpora() -> None:
    pydoc = Corpus.of("pydoc")
    assert 3e5 < pydoc.characters < 1e6
    assert "expression" in pydoc.text()
    assert sum(1 for _ in Corpus.of("stdlib").sources) > 300


def test_standard_input() -> None:
    code = "from recur.data.text import Corpus; c = Corpus.of('-'); print(c.characters, c.characters, repr(c.text()))"
    done = subprocess.run([sys.executable, "-c", code], input="héllo\n", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "6 6 'héllo\\n'"


# Pieces ---------------------------------------------------------------------------------------------------

marked = st.text(st.characters(codec="utf-8") | st.sampled_from("\r\n\u0301\u0323e\uac00\u1161\u11a8가"), max_size=60)


@given(text=marked, size=st.integers(1, 9), cut=st.floats(0.01, 0.99))
def test_pieces_make_up_the_text_however_it_is_cut(text: str, size: int, cut: float) -> None:
    import tempfile

    expected = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    expected = unicodedata.normalize("NFC", expected)
    whole = corpus_module.PIECE_BYTES
    corpus_module.PIECE_BYTES = size
    try:
        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus.of(write(Path(folder) / "text.txt", text))
            assert corpus.text() == expected
            if expected:
                parts = corpus.split(cut, (1 - cut) / 2)
                assert "".join(part.text() for part in parts) == expected
                assert sum(part.characters for part in parts) == len(expected)
    finally:
        corpus_module.PIECE_BYTES = whole


def test_a_split_never_leaves_a_part_empty_and_cuts_no_word_if_it_can(tmp_path: Path) -> None:
    for text in ("word " * 4000, "word " * 4000 + "\n", ("x" * 10_000 + "\n") * 3, "今" * 5000):
        corpus = Corpus.of(write(tmp_path / "text.txt", text))
        parts = [part.text() for part in corpus.split()]
        assert "".join(parts) == text
        assert all(parts)
        if " " in text:
            assert all(part.replace("word ", "").strip() == "" for part in parts)


def test_a_folder_leaves_out_what_is_hidden_and_archives(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "HEAD", "ref\n")
    (tmp_path / "archive.tar.gz").write_bytes(gzip.compress(b"name\0\0\0\0"))
    write(tmp_path / "a.txt", "a\n")
    corpus = Corpus.of(str(tmp_path))
    assert corpus.text() == "a\n"
    assert corpus.skipped == 1


def test_a_split_ends_behind_a_line() -> None:
    train, valid, test = Corpus.of("pydoc").split(0.8, 0.1)
    assert train.text().endswith("\n")
    assert valid.text().endswith("\n")
    assert abs(train.characters / Corpus.of("pydoc").characters - 0.8) < 0.01
    assert train.digest != valid.digest != test.digest
    assert train.digest == Corpus.of("pydoc").split(0.8, 0.1)[0].digest


# What cannot be read --------------------------------------------------------------------------------------


def test_invalid_bytes_are_named_with_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "latin.txt", b"x" * 100 + b"caf\xff!\n")
    with pytest.raises(TextError, match=r"latin.txt is not UTF-8 at byte 103 \(0xff, .*--encoding"):
        Corpus.of(path).text()
    late = write(tmp_path / "late.txt", "é".encode() * 3_000_000 + b"\xff")
    with pytest.raises(TextError, match=r"at byte 6000000 \(0xff"):
        Corpus.of(late).text()
    cut = write(tmp_path / "cut.txt", "ab今".encode()[:-1])
    with pytest.raises(TextError, match=r"at byte 2 \(0xe4, unexpected end of data"):
        Corpus.of(cut).text()
    wide = write(tmp_path / "wide.txt", "hello".encode("utf-16") + b"\0")
    with pytest.raises(TextError, match="is not UTF-16"):
        Corpus.of(wide).text()


def test_what_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no file 'absent.txt'; built-in corpora: pydoc, stdlib"):
        Corpus.of("absent.txt")
    with pytest.raises(TextError, match="holds no text file"):
        Corpus.of(str(tmp_path))
    with pytest.raises(TextError, match="no text given"):
        Corpus.of()
    with pytest.raises(TextError, match="is empty"):
        Corpus.of(write(tmp_path / "empty.txt", "")).split()
    with pytest.raises(TextError, match="the parts of a split must sum"):
        Corpus.of("pydoc").split(0.9, 0.2)
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"hello" * 1000)[:30])
    with pytest.raises(TextError, match="torn.gz cannot be read"):
        Corpus.of(str(torn)).text()
    bad = tmp_path / "bad.gz"
    whole = bytearray(gzip.compress(bytes(range(256)) * 100))
    whole[20] ^= 255
    bad.write_bytes(whole)
    with pytest.raises(TextError, match="bad.gz (cannot be read|is not UTF-8)"):
        Corpus.of(str(bad)).text()
    not_gz = tmp_path / "not.gz"
    not_gz.write_text("plain")
    with pytest.raises(TextError, match="not.gz cannot be read"):
        Corpus.of(str(not_gz)).text()


def test_a_pipe_can_be_read_again() -> None:
    read, write = os.pipe()
    os.write(write, b"once\nonly\n")
    os.close(write)
    try:
        assert Corpus.of(f"/dev/fd/{read}").text() == "once\nonly\n"
        assert Corpus.of(f"/dev/fd/{read}").text() == "once\nonly\n", "a second look at the same pipe"
    finally:
        os.close(read)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(TextError, match="a text's name is empty"):
        Corpus.of("")
