"""Counting, estimating and evaluating a Kneser–Ney 5-gram against dictionaries; how fast texts are encoded."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.dictionary_ngram import DictionaryKneserNey
from recur.baselines import ngram
from recur.data.text import Characters, Corpus, Vocab, Words


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


def streaming(gigabytes: float, processes: int) -> dict[str, float]:
    """A synthetic corpus looked through, counted and encoded by so many processes, and read; their peak memory."""
    import sys

    code = """
import resource, sys, threading, time
from pathlib import Path
from recur.data.text import Corpus, Stream, encoded, fit_vocab, workers
text, processes = sys.argv[1], int(sys.argv[2])
workers.available_cores = lambda: processes
peak = 0
def own(pid):  # memory of a process's own; pages of mapped files are the system's to take back
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return 0
def watch():
    global peak
    while True:
        below = [pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
        peak = max(peak, sum(map(own, ["self", *below])))
        time.sleep(0.05)
threading.Thread(target=watch, daemon=True).start()
def now():
    cpu = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in cpu)
times = [now()]
corpus = Corpus.of(text)
times.append(now())
vocab = fit_vocab(corpus, "word")
times.append(now())
ids = encoded(corpus, vocab)
times.append(now())
tokens = sum(batch.x.size for batch in Stream(ids, 64, 4000).batches())
times.append(now())
spent = [b - a for k in (0, 1) for a, b in zip(*[[t[k] for t in ts] for ts in (times, times[1:])])]
print(tokens, len(vocab), peak, *spent)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.txt"
        words = b"".join(Corpus.of(name).text().encode() for name in ("pydoc", "stdlib"))  # for many different ones
        with path.open("wb") as out:
            while out.tell() < gigabytes * 1e9:
                out.write(words)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), str(processes)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "RECUR_CACHE": folder},
        )
    tokens, types, peak, *seconds = map(float, done.stdout.split())
    names = [f"{stage}_{kind}" for kind in ("s", "cpu_s") for stage in ("look", "count", "encode", "read")]
    found = {"gigabytes": gigabytes, "processes": processes, "tokens": tokens, "types": types, "peak_mib": peak}
    return found | dict(zip(names, seconds, strict=True))
