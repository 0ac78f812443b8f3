"""Reading and writing of ARPA files: <s> and </s> stand for <bos> and <eos>, and white space is escaped as in
Python."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from recur.baselines.ngram.model import NGram, ProbabilityLevel, find_keys
from recur.data.text.stream import Floats, Ids
from recur.data.text.tokenizers import BOS, SPECIALS, Tokenizer, Words, make_tokenizer
from recur.data.text.vocabulary import Vocab
from recur.errors import TextError, shown
from recur.utils.files import open_stream, replacing

TO_ARPA = {"<bos>": "<s>", "<eos>": "</s>"}
_FROM_ARPA = {arpa: ours for ours, arpa in TO_ARPA.items()}


def special(token: str) -> str | None:
    """Return the name in recur of a special token; some files write it in capitals."""
    lowered = token.lower()
    return _FROM_ARPA.get(lowered) or (lowered if lowered in SPECIALS else None)


def escape(token: str) -> str:
    odd = [c.isspace() or not c.isprintable() for c in token]
    if token.lower() in _FROM_ARPA:
        return f"\\x3c{token[1:]}"  # a word of the text that looks like an end of ours
    if not any(odd) and unescape(token) == token:
        return token  # a backslash that escapes nothing is left alone: other implementations know no escapes
    written = []
    for c, is_odd in zip(token, odd, strict=True):
        escaped = c.encode("unicode_escape").decode() if is_odd or c == "\\" else c
        written.append("\\x20" if c == " " else escaped)
    return "".join(written)


def unescape(token: str) -> str:
    if "\\" not in token:
        return token
    return re.sub(
        r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt\\])",
        lambda found: found[0].encode().decode("unicode_escape"),
        token,
    )


ESCAPED = "recur: tokens are escaped"
BACKWARD = "recur: texts are read from the end"
TOKENS = "recur: tokens are of the kind "
NEVER = -99.0
"""Conventional value of log10 0."""
LONGEST, ORDERS = 1 << 20, 100
"""Largest number of characters of a line, and largest order."""


def write_arpa(model: NGram, path: Path | str) -> None:
    """Write a model as an ARPA file, which other n-gram toolkits read.

    >>> from pathlib import Path
    >>> from recur.baselines import ngram
    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> ngram.write_arpa(ngram.fit(text, recur.data.text.fit_vocab(text, "word"), order=2), "book.arpa")
    >>> "ngram 2=" in Path("book.arpa").read_text()
    True
    """
    tokens = [TO_ARPA.get(token) or escape(token) for token in model.vocab.tokens]
    plain = all(TO_ARPA.get(token, token) == name for token, name in zip(model.vocab.tokens, tokens, strict=True))
    with replacing(Path(path)) as stream:
        out = io.TextIOWrapper(stream, "utf-8", newline="\n")
        notes = [ESCAPED] * (not plain) + [BACKWARD] * model.backward + _kind(model.vocab.tokenizer)
        out.write("".join(f"{note}\n" for note in notes) + "\n" * bool(notes))
        written = [_rows(model, k) for k in range(model.order)]
        out.write("\\data\\\n")
        for k, rows in enumerate(written, start=1):
            out.write(f"ngram {k}={len(rows)}\n")
        names = np.array(tokens, dtype=object)
        for k, rows in enumerate(written):
            _write_level(out, model, k, rows, names)
        out.write("\n\\end\\\n")
        out.detach()  # flushed, and the stream is left open: it is not ours to close


def _kind(tokenizer: Tokenizer) -> list[str]:
    """Return the comment on the tokenizer of a file: none for words, the model for subwords."""
    if tokenizer == Words() or tokenizer.kind == "subword":
        return []
    return [TOKENS + " ".join([tokenizer.kind, *(name for name, on in tokenizer.options().items() if on)])]


def _tokenizer(notes: list[str], name: str) -> Tokenizer:
    written = next((note.removeprefix(TOKENS) for note in notes if note.startswith(TOKENS)), "word")
    kind, *options = written.split() or [""]
    if kind not in ("char", "word", "space") or not set(options) <= {"punctuation", "lower"}:
        raise TextError(f"{name}: tokens of the kind {shown(written)} are not known")
    return make_tokenizer(kind, **dict.fromkeys(options, True))


def _rows(model: NGram, k: int) -> Ids:
    """Return the indices of the n-grams to write: for unigrams, predictable tokens and <bos>."""
    if k:
        return np.arange(len(model.levels[k].keys))
    can = np.isfinite(model.levels[0].logp)
    if model.vocab.tokenizer.lines:
        can[BOS] = True
    return np.nonzero(can)[0]


def _write_level(out: TextIO, model: NGram, k: int, rows: Ids, names: Ids) -> None:
    out.write(f"\n\\{k + 1}-grams:\n")
    level = model.levels[k]
    logp, backoff = _log10(level.logp[rows]), _log10(level.backoff[rows])
    columns = []
    place = rows
    for below in range(k, 0, -1):  # from the last token to the first
        keys = model.levels[below].keys[place]
        columns.append(names[keys % len(model.vocab)])
        place = keys // len(model.vocab)
    columns.append(names[place])
    last = k + 1 == model.order
    for row in zip(logp.tolist(), backoff.tolist(), *columns[::-1], strict=True):
        end = "" if last or row[1] == 0 else f"\t{row[1]:.7g}"
        out.write(f"{row[0]:.7g}\t{' '.join(row[2:])}{end}\n")


def _log10(natural: Floats) -> Floats:
    decimal: Floats = np.maximum(natural / np.log(10), NEVER)
    return decimal


def read_arpa(path: Path | str, tokenizer: Tokenizer | None = None) -> NGram:
    """Read an ARPA file of any toolkit. The tokenizer is that of the file, else words, unless given.

    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> model = recur.baselines.ngram.fit(text, recur.data.text.fit_vocab(text, "word"), order=2)
    >>> recur.baselines.ngram.write_arpa(model, "book.arpa")
    >>> recur.baselines.ngram.read_arpa("book.arpa").order
    2
    """
    try:
        with io.TextIOWrapper(open_stream(path), "utf-8-sig") as stream:
            return _parse(_lines(stream, str(path)), str(path), tokenizer)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TextError(f"{path} cannot be read: {error}") from None


def _lines(stream: TextIO, name: str) -> Iterator[str]:
    for number in itertools.count(1):
        line = stream.readline(LONGEST)
        if len(line) == LONGEST:
            raise TextError(f"{name}:{number}: a line of {LONGEST:,} characters; it is not an ARPA file")
        if not line:
            return  # what follows the end is the end of the file
        if stripped := line.strip("\r\n\t "):
            yield stripped


def _parse(lines: Iterator[str], name: str, tokenizer: Tokenizer | None) -> NGram:
    sizes, notes = _header(lines, name)
    tables = [_section(lines, name, k, size) for k, size in enumerate(sizes, start=1)]
    if next(lines, "") != "\\end\\":
        raise TextError(f"{name} is cut off: it does not end in \\end\\")

    vocab, ids = _vocab(tables[0].grams, ESCAPED in notes, name, tokenizer or _tokenizer(notes, name))
    levels: list[ProbabilityLevel] = []
    for table in tables:
        levels.append(_level(_tokens(table, ids, name), table, levels, len(vocab), name))
    return NGram(vocab, levels, "arpa", backward=BACKWARD in notes)


def _vocab(written: list[str], escaped: bool, name: str, tokenizer: Tokenizer) -> tuple[Vocab, dict[str, int]]:
    """Return the vocabulary of the unigram section, and the id of each token as written."""
    try:
        singles = [special(token) or (unescape(token) if escaped else token) for token in written]
        "".join(singles).encode()
    except UnicodeError:
        raise TextError(f"{name}: a token of \\1-grams: has an escape that is not a character") from None
    if len(set(singles)) != len(singles):
        raise TextError(f"{name}: a token is repeated in \\1-grams:")
    others = [token for token in singles if token not in SPECIALS]
    vocab = Vocab((*SPECIALS, *others), (1,) * (len(others) + 4), tokenizer)
    return vocab, {token: vocab.ids[single] for token, single in zip(written, singles, strict=True)}


def _tokens(table: _Table, ids: dict[str, int], name: str) -> Ids:
    """Return token ids (n, k)."""
    k = table.order
    grams = [gram.split(" ") for gram in table.grams]
    if any(len(gram) != k for gram in grams):
        raise TextError(f"{name}: not every row of \\{k}-grams has {k} tokens")
    try:
        return np.array([[ids[t] for t in gram] for gram in grams], np.int64).reshape(-1, k)
    except KeyError as error:
        raise TextError(f"{name}: {shown(error.args[0])} is in \\{k}-grams but not in \\1-grams") from None


def _header(lines: Iterator[str], name: str) -> tuple[list[int], list[str]]:
    """Return the number of n-grams of each order, and the comments before them."""
    before: list[str] = []
    while (line := next(lines, None)) != "\\data\\":
        if line is None:
            raise TextError(f"{name} is not an ARPA file: it has no \\data\\")
        if line.startswith("recur: ") and len(before) < ORDERS:
            before.append(line)
    sizes: list[int] = []
    for line in lines:
        if line == "\\1-grams:":
            break
        found = re.fullmatch(r"ngram\s+(\d{1,9})\s*=\s*(\d{1,15})", line)
        if not found or int(found[1]) != len(sizes) + 1 or len(sizes) == ORDERS:
            raise TextError(f"{name}: expected 'ngram {len(sizes) + 1}=count' in \\data\\, got {shown(line)}")
        sizes.append(int(found[2]))
    else:
        raise TextError(f"{name} is cut off: it ends inside \\data\\")
    if not sizes:
        raise TextError(f"{name}: \\data\\ names no n-grams")
    return sizes, before


class _Table(NamedTuple):
    """Rows of one section."""

    order: int
    logp: Floats
    grams: list[str]
    backoff: Floats


def _section(lines: Iterator[str], name: str, k: int, size: int) -> _Table:
    if k > 1 and (title := next(lines, "the end of the file")) != f"\\{k}-grams:":
        raise TextError(f"{name}: expected \\{k}-grams: and got {shown(title)}")
    logps: list[float] = []
    backoffs: list[float] = []
    grams = []
    for row in range(size):
        line = next(lines, None)
        if line is None or line.startswith("\\"):
            raise TextError(f"{name} is cut off: \\{k}-grams: has {row} of {size} rows")
        try:
            fields = line.split("\t") if "\t" in line else _spaced(line, k)
            logps.append(float(fields[0]))
            backoffs.append(float(fields[2]) if len(fields) > 2 and fields[2].strip() else 0.0)
            grams.append(fields[1].strip())
            if not (logps[-1] < 1e-4 and abs(backoffs[-1]) < np.inf):  # not a number is not less, either
                raise ValueError
        except (ValueError, IndexError):
            raise TextError(
                f"{name}: row {row + 1} of \\{k}-grams: is not 'log10 p, tokens, back-off': {shown(line)}"
            ) from None
    return _Table(k, _natural(logps), grams, _natural(backoffs))


def _natural(decimal: list[float]) -> Floats:
    values = np.array(decimal, np.float64)
    natural: Floats = np.where(values <= NEVER, -np.inf, values * np.log(10))
    return natural


def _spaced(line: str, k: int) -> list[str]:
    """Split a line in which all fields are separated by spaces."""
    fields = line.split()
    return [fields[0], " ".join(fields[1 : k + 1]), *fields[k + 1 :]]


def _level(tokens: Ids, table: _Table, below: list[ProbabilityLevel], K: int, name: str) -> ProbabilityLevel:
    k = table.order
    if k == 1:
        all_logp, all_backoff = np.full(K, -np.inf), np.zeros(K)
        all_logp[tokens[:, 0]], all_backoff[tokens[:, 0]] = table.logp, table.backoff
        all_logp[BOS] = -np.inf  # never predicted: it begins what is
        return ProbabilityLevel(np.arange(K), all_logp, all_backoff)
    place = tokens[:, 0]
    for at in range(1, k):
        keys = place * K + tokens[:, at]
        if at + 1 == k:
            break
        place = find_keys(below[at].keys, keys)
        if (place < 0).any():
            raise TextError(f"{name}: a context of \\{k}-grams: is missing from \\{at + 1}-grams:")
    order = np.argsort(keys, kind="stable")
    if len(keys) and (np.diff(keys[order]) == 0).any():
        raise TextError(f"{name}: an n-gram is repeated in \\{k}-grams:")
    return ProbabilityLevel(keys[order], table.logp[order], table.backoff[order])
