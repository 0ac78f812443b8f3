"""Counting, estimating and evaluating a Kneser–Ney 5-gram against dictionaries; how fast texts are encoded."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.dictionary_ngram import DictionaryKneserNey
from recur import ngram
from recur.text import Characters, Corpus, Vocab, Words


def kneser_ney(train: Path, test: Path, rounds: int) -> dict[str, Any]:
    """Both sides read the files, count, estimate and evaluate, in turns; they must agree."""

    def ours() -> float:
        corpus = Corpus.of(str(train))
        return ngram.fit(corpus, Vocab.fit(corpus, Words()), 5).perplexity(Corpus.of(str(test)))

    def dictionaries() -> float:
        sentences = [line.split() for line in train.read_text().splitlines()]
        vocabulary = {word for sentence in sentences for word in sentence} | {"</s>", "<unk>"}
        held = [line.split() for line in test.read_text().splitlines()]
        return DictionaryKneserNey(sentences, 5, vocabulary).perplexity(held)

    times: dict[str, list[float]] = {"ours": [], "dictionaries": []}
    found = {}
    for _ in range(rounds):
        for name, run in (("ours", ours), ("dictionaries", dictionaries)):
            begun = time.perf_counter()
            found[name] = run()
            times[name].append(time.perf_counter() - begun)
    if not math.isclose(found["ours"], found["dictionaries"], rel_tol=1e-9):
        raise SystemExit(f"they do not agree: {found}")
    typical = {name: statistics.median(seconds) for name, seconds in times.items()}
    return {
        "perplexity": found["ours"],
        "seconds": typical,
        "ratio": typical["dictionaries"] / typical["ours"],
        "kenlm_seconds": _kenlm(train),
    }


def _kenlm(train: Path) -> float | None:
    """KenLM's lmplz, counting and estimating only, where it is installed. It refuses a text that says <unk>."""
    lmplz = shutil.which("lmplz")
    if lmplz is None:
        return None
    text = train.read_text().replace("<unk>", "UNKNOWN").encode()
    with tempfile.NamedTemporaryFile() as arpa:
        begun = time.perf_counter()
        subprocess.run(
            [lmplz, "-o", "5", "-S", "2G", "--arpa", arpa.name], input=text, check=True, stderr=subprocess.DEVNULL
        )
        return time.perf_counter() - begun


def encoding(rounds: int) -> dict[str, float]:
    """MB of text a second, on one core, once the vocabulary stands; the standard library's own sources."""
    corpus = Corpus.of("stdlib")
    text = corpus.text()
    megabytes = len(text.encode()) / 1e6
    rates = {}
    for tokenizer in (Characters(), Words(), Words(punctuation=True)):
        vocab = Vocab.from_counts(tokenizer.count([text]), tokenizer)
        vocab.encode(text[:1000])
        best = math.inf
        for _ in range(rounds):
            begun = time.perf_counter()
            vocab.encode(text)
            best = min(best, time.perf_counter() - begun)
        name = tokenizer.kind + (" with punctuation" if tokenizer == Words(punctuation=True) else "")
        rates[name] = megabytes / best
    return rates


def streaming(gigabytes: float) -> dict[str, float]:
    """A synthetic corpus, fitted, encoded and read through in a process of its own; its peak memory."""
    import sys

    code = """
import sys, threading, time
from pathlib import Path
from typing import Any
from recur.text import Corpus, Stream, Vocab, Words, encoded
text, cache = sys.argv[1:]
peak = 0
def watch():
    global peak
    while True:  # memory of the process's own; pages of mapped files are the system's to take back
        own = Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]
        peak = max(peak, int(own) / 1024)
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
begun = time.perf_counter()
corpus = Corpus.of(text)
ids = encoded(corpus, Vocab.fit(corpus, Words()), Path(cache))
ready = time.perf_counter() - begun
tokens = sum(batch.x.size for batch in Stream(ids, 64, 4000).batches())
print(tokens, ready, time.perf_counter() - begun - ready, peak)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.txt"
        words = Corpus.of("pydoc").text().encode()
        with path.open("wb") as out:
            while out.tell() < gigabytes * 1e9:
                out.write(words)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), folder], capture_output=True, text=True, check=True
        )
    tokens, ready, read, peak = map(float, done.stdout.split())
    return {"gigabytes": gigabytes, "tokens": tokens, "encode_s": ready, "read_s": read, "peak_mib": peak}
