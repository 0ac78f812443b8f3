"""Networks and corpora in forked children, in many threads, in workers, and one cache for two: all as for one alone."""

from __future__ import annotations

import contextlib
import io
import os
import random
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from campaigns.campaign import Attempt, dice
from recur import Recurrent
from recur.data.text import Corpus, Vocab
from recur.data.text.tokenizers import make_tokenizer
from recur.data.text.vocabulary import encoded

TRIES = 1000
HANG = 60.0
"""Seconds after which a child or a worker counts as hanging."""
CELLS = ["lstm", "gru", "elman", "mingru", "indrnn", "slstm", "lnlstm"]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
"""Relative to the largest number: what torch's products may differ by for another number of threads."""
WORKERS = 2
SPAWNED = 100
"""One attempt in so many has workers that start anew, which takes seconds."""


class Case(NamedTuple):
    """A network and what it reads."""

    net: Recurrent
    x: Tensor
    threads: int

    def gradients(self) -> list[Tensor]:
        """Outputs, and the gradients of input and weights."""
        x = self.x.clone().requires_grad_()
        outputs = self.net(x).outputs
        found = torch.autograd.grad(outputs.square().sum(), [x, *self.net.parameters()])
        return [outputs.detach(), *found]

    def stream(self) -> list[Tensor]:
        """Outputs, a step at a time."""
        stream = self.net.stream(len(self.x))
        return [torch.stack([stream.step(x) for x in self.x.unbind(1)], dim=1)]

    def alone(self, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        with threads(1):
            return work()


def draw(d: random.Random) -> Case:
    dtype = d.choice([torch.float32, torch.float64])
    B, T, D, H = d.choice([1, 3, 16]), d.choice([1, 5, 30]), d.choice([3, 32]), d.choice([8, 48, 128])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(d.randrange(2**31))
        net = Recurrent(d.choice(CELLS), D, H, num_layers=d.choice([1, 2]), dtype=dtype)
        return Case(net, torch.randn(B, T, D, dtype=dtype), d.choice([2, 3, 4]))


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def difference(got: list[Tensor], expected: list[Tensor]) -> str | None:
    """What is wrong, if anything is."""
    for k, (mine, other) in enumerate(zip(got, expected, strict=True)):
        bound = TOLERANCE[other.dtype] * max(1.0, float(other.abs().max()))
        off = float((mine - other).abs().max())
        if not off <= bound:
            return f"tensor {k} is off by {off:.2g}"
    return None


# Forked children ----------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], list[Tensor]]) -> list[Tensor] | str:
    """What a forked child makes, or what became of it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made = io.BytesIO()
            np.savez(made, *(tensor.numpy() for tensor in work()))
            with os.fdopen(write, "wb") as out:
                out.write(made.getvalue())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    content, end = b"", time.monotonic() + HANG
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            piece = pipe.read(1 << 16)
            if not piece:
                break
            content += piece
        else:
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        return f"the child hangs after {HANG:g} s" if status == -signal.SIGKILL else f"the child ended with {status}"
    return [torch.from_numpy(array) for array in np.load(io.BytesIO(content)).values()]


def fork_after(work: Callable[[Case], list[Tensor]]) -> Callable[[random.Random], str | None]:
    """A child does what its parent did before, on several threads."""

    def attempt(d: random.Random) -> str | None:
        case = draw(d)
        expected = case.alone(lambda: work(case))
        with threads(case.threads):
            work(case)
            made = in_child(lambda: work(case))
        return made if isinstance(made, str) else difference(made, expected)

    return attempt


def fork_amid(d: random.Random) -> str | None:
    """A child is made while another thread is in the middle of a step."""
    case = draw(d)
    expected, ended = case.alone(case.stream), threading.Event()

    def busy() -> None:
        while not ended.is_set():
            case.stream()

    other = threading.Thread(target=busy)
    with threads(case.threads):
        other.start()
        try:
            time.sleep(d.random() * 0.01)
            made = in_child(case.stream)
        finally:
            ended.set()
            other.join()
    return made if isinstance(made, str) else difference(made, expected)


# Threads ------------------------------------------------------------------------------------------------------------


def many_threads(d: random.Random) -> str | None:
    """One network in many threads at once: forward and back, and as streams."""
    case = draw(d)
    expected = {work: case.alone(work) for work in (case.gradients, case.stream)}
    jobs = [d.choice(list(expected)) for _ in range(12)]
    with threads(case.threads), ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda work: work(), jobs))
    return next(filter(None, map(difference, made, (expected[work] for work in jobs))), None)


# Workers ------------------------------------------------------------------------------------------------------------


class Outputs(Dataset[Tensor]):
    """The rows of a case, each read by its network in whichever worker is asked for it."""

    def __init__(self, case: Case) -> None:
        self.net, self.x = case.net, case.x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, k: int) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = self.net(self.x[k : k + 1]).outputs
            return outputs[0]


class Windows(Dataset[Tensor]):
    """Windows of an encoded corpus, which each worker opens for itself."""

    def __init__(self, corpus: Corpus, vocab: Vocab, folder: Path, width: int) -> None:
        self.corpus, self.vocab, self.folder, self.width = corpus, vocab, folder, width
        self.count = len(encoded(corpus, vocab, folder)) // width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> Tensor:
        ids = encoded(self.corpus, self.vocab, self.folder)
        return torch.from_numpy(ids[k * self.width : (k + 1) * self.width].astype(np.int64))


def loaded(data: Dataset[Tensor], context: str) -> list[Tensor]:
    loader = DataLoader(data, batch_size=1, num_workers=WORKERS, multiprocessing_context=context, timeout=HANG)
    return [torch.cat(list(loader))]


def network_in_workers(d: random.Random, context: str = "fork") -> str | None:
    case = draw(d)
    with torch.no_grad():
        expected = case.alone(lambda: [case.net(case.x).outputs])
        with threads(case.threads):
            case.net(case.x)
            return difference(loaded(Outputs(case), context), expected)


def corpus_in_workers(d: random.Random, context: str = "fork") -> str | None:
    with book(d) as (corpus, vocab, folder):
        data = Windows(corpus, vocab, folder, 16)
        (made,) = loaded(data, context)
        expected = torch.from_numpy(vocab.encode_corpus(corpus).astype(np.int64))[: len(data) * 16]
        return None if torch.equal(made.flatten(), expected) else "other ids than the corpus has"


# One cache ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def book(d: random.Random) -> Iterator[tuple[Corpus, Vocab, Path]]:
    """A text, its vocabulary and a folder for what it is encoded to."""
    with tempfile.TemporaryDirectory() as name:
        words = [f"{d.choice('abcdefg')}{d.randrange(50)}" for _ in range(d.choice([100, 2000]))]
        file = Path(name) / "book.txt"
        file.write_text(" ".join(words) + "\n")
        corpus = Corpus.of(str(file))
        yield corpus, Vocab.fit(corpus, make_tokenizer(d.choice(["char", "word"]))), Path(name) / "cache"


def one_cache(d: random.Random) -> str | None:
    """Several processes encode the same corpus at once; sometimes what one left behind is torn."""
    with book(d) as (corpus, vocab, folder):
        expected = [torch.from_numpy(vocab.encode_corpus(corpus).astype(np.int64))]

        def read() -> list[Tensor]:
            return [torch.from_numpy(encoded(corpus, vocab, folder).astype(np.int64))]

        if d.random() < 0.3:
            read()
            for file in folder.iterdir():
                if d.random() < 0.5:
                    os.truncate(file, d.randrange(max(1, file.stat().st_size)))  # another may have emptied it
        children = [in_child_later(read) for _ in range(3)]
        for made in [*(finish() for finish in children), read()]:
            if isinstance(made, str) or (wrong := difference(*_doubles(made, expected))):
                return made if isinstance(made, str) else wrong
    return None


def in_child_later(work: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor] | str]:
    """The same in a thread, so that several children run at once."""
    made: list[list[Tensor] | str] = []
    thread = threading.Thread(target=lambda: made.append(in_child(work)))
    thread.start()

    def finish() -> list[Tensor] | str:
        thread.join()
        return made[0]

    return finish


def _doubles(*lists: list[Tensor]) -> list[list[Tensor]]:
    return [[tensor.double() for tensor in tensors] for tensors in lists]


KINDS: dict[str, Callable[[random.Random], str | None]] = {
    "a forked child computes gradients": fork_after(Case.gradients),
    "a forked child streams": fork_after(Case.stream),
    "a child forked amid steps": fork_amid,
    "many threads, one network": many_threads,
    "a network in forked workers": network_in_workers,
    "a corpus in forked workers": corpus_in_workers,
    "several processes, one cache": one_cache,
}
SPAWN: dict[str, Callable[[random.Random], str | None]] = {
    "a network in spawned workers": lambda d: network_in_workers(d, "spawn"),
    "a corpus in spawned workers": lambda d: corpus_in_workers(d, "spawn"),
}


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    for number in numbers:
        kinds = SPAWN if number % SPAWNED == SPAWNED - 1 else KINDS
        name = list(kinds)[(number // SPAWNED if kinds is SPAWN else number) % len(kinds)]
        try:
            yield Attempt(number, name, kinds[name](dice(seed, number)))
        except RuntimeError as error:  # of a DataLoader whose worker ended or hangs
            yield Attempt(number, name, " ".join(str(error).split()))
