"""Many processes: weak scaling measured on this machine's cores, and what GPUs would send each other, computed.

    n GPUs, each b lanes of T tokens a step; L LSTM layers of width H, K tokens, the embedding tied to the output
    P = 8 L H² + K H                          weights (biases left out)
    compute = 6 P b T / F                     forward 2 P, backward 4 P for each token, at F operations a second;
              at least 2 L T τ                since the T steps of a layer wait for each other, there and back
    S = 4 P, or 2 P in bfloat16               bytes of gradients
    travel = 2 (n − 1)/n · S / W + 2 ⌈log₂ n⌉ α for each bucket          (ring for the bytes, tree for the start)
    W, α: NVLink inside a machine of 8, one network card a GPU between machines

Gradients of a layer are whole when its backward pass has gone through all T steps, those of the tied embedding when all
is over. A bucket leaves when it is whole and the one before has left; what is still on its way when the backward pass
ends is what a step waits for. efficiency = compute / (compute + waiting).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

GPUS = (8, 16, 64, 256, 1024)
WIDTHS = (256, 650, 1150, 1500, 4096)
BUCKET = 25e6
"""Bytes; DistributedDataParallel's own."""
WINDOW = 32
"""Steps of a batch, in what is measured here."""
OTHERS = 0.15
"""Of a core: while others have more of it, nothing is measured, and what was measured is measured again."""
QUIET = 1.85
"""Times the tokens of one, at least, that two apart have in a round that counts."""
TRIES, WAIT = 8, 300
"""How often, and the seconds that are waited for a quiet moment before each."""
PAYS = 1.25
"""Twice the GPUs have to bring so much, to pay."""


class Machine(NamedTuple):
    """An H200 and what lies between several."""

    flops: float = 19e12
    """61,000 tokens a second of a network of 51 million weights, 6 operations for each: what training reaches here, of
    the 67e12 that float32 has and the 989e12 of bfloat16."""
    step: float = 4e-6
    """Seconds of one step of a recurrence at the least (τ)."""
    inside: float = 0.8 * 450e9
    """Bytes a second by NVLink, one way, of which four fifths are reached."""
    between: float = 0.8 * 50e9
    """… by a card of 400 Gbit/s for each GPU."""
    start_inside: float = 3e-6
    start_between: float = 10e-6


class Network(NamedTuple):
    width: int
    layers: int = 3
    tokens: int = 10_000
    window: int = 70

    @property
    def layer(self) -> int:
        return 8 * self.width**2

    @property
    def weights(self) -> int:
        return self.layers * self.layer + self.tokens * self.width

    def compute(self, lanes: float, machine: Machine) -> float:
        least = 2 * self.layers * self.window * machine.step
        return max(6 * self.weights * lanes * self.window / machine.flops, least)


class Step(NamedTuple):
    """Seconds of one step."""

    compute: float
    travel: float
    waiting: float
    bytes: float
    """Sent by each GPU."""

    @property
    def total(self) -> float:
        return self.compute + self.waiting

    @property
    def efficiency(self) -> float:
        return self.compute / self.total


def travel(size: float, n: int, machine: Machine) -> float:
    """Seconds that a part of the gradients is on its way."""
    if n == 1:
        return 0.0
    wide, start = (machine.inside, machine.start_inside) if n <= 8 else (machine.between, machine.start_between)
    return 2 * (n - 1) / n * size / wide + 2 * math.ceil(math.log2(n)) * start


def step(network: Network, n: int, lanes: float, width: int, machine: Machine) -> Step:
    """One step of n GPUs with so many lanes each; a number takes `width` bytes on its way."""
    compute = network.compute(lanes, machine)
    backward, share = compute * 2 / 3, network.layer / network.weights
    ready, parts = backward * (1 - network.layers * share), []  # the output's own backward pass comes first
    for _ in range(network.layers):
        ready += backward * share
        parts.append((ready, width * network.layer))
    parts.append((backward, width * network.tokens * network.width))
    over = taken = 0.0
    for at, size in parts:
        count = math.ceil(size / BUCKET)
        seconds = count * travel(size / count, n, machine)
        over, taken = max(over, at) + seconds, taken + seconds
    sent = 2 * (n - 1) / n * width * network.weights
    return Step(compute, taken, max(over - backward, 0.0), sent)


def stops_paying(network: Network, lanes: int, width: int, machine: Machine) -> int:
    """Of a batch of so many lanes in all: the number of GPUs whose double brings less than PAYS."""
    n = 1
    while 2 * n <= min(lanes, 4096):
        now, then = (step(network, k, lanes / k, width, machine).total for k in (n, 2 * n))
        if now / then < PAYS:
            return n
        n *= 2
    return n


def paper(machine: Machine, lanes: int, batch: int) -> dict[str, object]:
    """The tables, printed, and as JSON."""
    rows = []
    for width in WIDTHS:
        network = Network(width)
        print(f"\nwidth {width}, {network.layers} layers: {network.weights / 1e6:.1f} million weights, ", end="")
        taken = 1e3 * network.compute(lanes, machine)
        print(f"{lanes} lanes of {network.window} tokens on each GPU, {taken:.2f} ms a step")
        print("  GPUs   float32: MB sent   ms   waiting   efficiency    bfloat16: MB sent   ms   waiting   efficiency")
        for n in GPUS:
            both = [step(network, n, lanes, bytes_, machine) for bytes_ in (4, 2)]
            shown = [
                f"{s.bytes / 1e6:14.0f}{1e3 * s.travel:8.2f}{1e3 * s.waiting:9.2f}{s.efficiency:11.0%}" for s in both
            ]
            print(f"  {n:4d}   {shown[0]}       {shown[1]}")
            rows.append({"width": width, "gpus": n, "float32": both[0]._asdict(), "bfloat16": both[1]._asdict()})
        ends = [stops_paying(network, batch, bytes_, machine) for bytes_ in (4, 2)]
        print(f"  a batch of {batch} lanes in all stops paying beyond {ends[0]} GPUs, in bfloat16 beyond {ends[1]}")
    least = {n: {b: narrowest(n, lanes, b, machine) for b in (4, 2)} for n in GPUS}
    print("\nthe narrowest network that is four fifths efficient, float32 and bfloat16:")
    for n, found in least.items():
        print(f"  {n:4d} GPUs   {found[4] or 'none':>6}   {found[2] or 'none':>6}")
    return {"assumed": machine._asdict(), "lanes": lanes, "rows": rows, "narrowest": least}


def narrowest(n: int, lanes: int, width: int, machine: Machine) -> int | None:
    """Of n GPUs with so many lanes each."""
    fits = (H for H in range(64, 16_385, 64) if step(Network(H), n, lanes, width, machine).efficiency >= 0.8)
    return next(fits, None)


# Measured --------------------------------------------------------------------------------------------------------


def measure(rounds: int, steps: int, hidden: int, batch: int) -> dict[str, object]:
    """Tokens a second of one process, of two with twice the batch, and of two that know nothing of each other, in
    turns, one thread each; and the message of a step alone.

        floor     2 t / (t + m)     of a step of one process, t, and a message alone, m: nobody waits for a slower one
    """
    found: dict[str, list[float]] = {"one": [], "two": [], "apart": []}
    weights = 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for name, rates in found.items():
                ranks, jobs = 2 if name == "two" else 1, 2 if name == "apart" else 1
                for tried in range(TRIES):
                    _await_quiet()
                    begun = _Others()
                    outs = [Path(folder) / f"{turn}-{name}-{tried}-{job}" for job in range(jobs)]
                    ended = [
                        _ended(job) for job in [_started(ranks, out, steps, hidden, batch * ranks) for out in outs]
                    ]
                    if begun.share() < OTHERS:
                        break
                else:
                    raise RuntimeError("this machine is busy with something else")
                weights = ended[0]["parameters"]
                rates.append(sum(one["predictions_per_second"] for one in ended))
            shown = ", ".join(f"{name} {rates[-1]:,.0f}" for name, rates in found.items())
            print(f"round {turn + 1}, tokens a second: {shown}", flush=True)
    message = json.loads(_torchrun(2, ["-m", "bench.message", str(4 * weights)]).communicate()[0])
    return {**summed_up(found, message, batch), "hidden": hidden, "batch": batch}


def summed_up(found: dict[str, list[float]], message: dict[str, Any], batch: int) -> dict[str, Any]:
    """Of the rounds in which two processes apart had what two cores are, whatever the machine below did."""
    rounds = [dict(zip(found, rates, strict=True)) for rates in zip(*found.values(), strict=True)]
    quiet = [one for one in rounds if one["apart"] >= QUIET * one["one"]]
    if not quiet:
        raise RuntimeError("this machine is busy with something else")
    speeds = {name: [one[name] for one in quiet] for name in found}
    ratios = {name: [one[name] / one["one"] for one in quiet] for name in ("two", "apart")}
    middle = {name: statistics.median(each) for name, each in ratios.items()}
    step, alone = 1e3 * batch * WINDOW / statistics.median(speeds["one"]), message["median"]
    floor = 2 * step / (step + alone)
    counted = f"median of {len(quiet)} of {len(rounds)} rounds; {min(ratios['two']):.2f} … {max(ratios['two']):.2f}"
    print(f"two processes: {middle['two']:.2f} × the tokens of one ({counted})")
    print(f"two that do not speak to each other: {middle['apart']:.2f} ×")
    print(f"an all-reduce of {message['bytes'] / 1e6:.2f} MB alone: {alone:.2f} ms")
    print(f"a step of one {step:.1f} ms, and with the message {floor:.2f} ×")
    return {
        "tokens_per_second": speeds, "rounds": len(rounds), "ratios": ratios, "ratio": middle["two"],
        "apart": middle["apart"], "step_ms": step, "message": message, "floor": floor,
    }  # fmt: skip


class _Others:
    """What processes other than this one's have of the cores, from now on: of one core, 0 where nothing says it."""

    def __init__(self) -> None:
        self._begun, self._all, self._own = time.monotonic(), _seconds_of_all(), _seconds_of_children()

    def share(self) -> float:
        own = _seconds_of_children() - self._own
        return (_seconds_of_all() - self._all - own) / (time.monotonic() - self._begun)


def _seconds_of_all() -> float:
    try:
        counted = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0
    return (sum(counted) - counted[3] - counted[4]) / os.sysconf("SC_CLK_TCK")  # without what was idle or waited


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _await_quiet() -> None:
    for _ in range(WAIT):
        now = _Others()
        time.sleep(1)
        if now.share() < OTHERS:
            return


def _torchrun(ranks: int, command: list[str]) -> subprocess.Popen[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*torchrun, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    )


def _started(ranks: int, out: Path, steps: int, hidden: int, batch: int) -> subprocess.Popen[str]:
    command = ["-m", "recur", "train", "pydoc", "--device", "cpu", "--threads", "1", "--no-baseline", "--json"]
    command += [
        "--hidden-size",
        str(hidden),
        "--batch-size",
        str(batch),
        "--window",
        str(WINDOW),
        "--steps",
        str(steps),
    ]
    return _torchrun(ranks, [*command, "--eval-every", "1000", "--out", str(out)])


def _ended(job: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = job.communicate()
    if job.returncode:
        raise RuntimeError(f"a training ended with {job.returncode}")
    found: dict[str, Any] = json.loads(out)
    return found


def main(given: argparse.Namespace) -> dict[str, object]:
    found = paper(Machine(flops=given.tflops * 1e12), given.lanes, given.batch_size)
    if given.measure:
        print()
        found["measured"] = measure(given.rounds, given.steps, given.hidden_size, 16)
    return found
