"""Sessions of an LSTM of 256 units on a server: time a token and tokens a second, from 1 session to 10,000, beside the
same server whose sessions are stepped one by one in PyTorch.

The load comes over one WebSocket, or four, each with its share of the sessions: one message has a token of each, its
answer the next, and so on; all servers are asked in the same way, in turns. The clock also counts what else the machine
does; the CPU time of the server's process does not.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from websockets.asyncio.client import connect

from bench.serve_peer import LIMITS, WAYS, hub_of
from recur.serve.engine import Engine
from recur.serve.rows import RowEvents, StepBatch, StepBatchOutput

CLIENTS = (1, 4)
ROUNDS = 3
SIZES = (1, 10, 100, 1000, 10_000)
HISTORY = 100_000
HELD = 100_000
"""Sessions whose memory is measured."""
TOKENS = 40


def serving(seconds: float = 2.0, sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """All figures; each of a size and a way from so many seconds."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        run = _train(Path(folder))
        before = os.getloadavg()[0]
        engines = in_process(run, sizes, seconds)
        servers = {way: stack.enter_context(_server(run, way)) for way in WAYS}
        _refuse_unequal({way: found[0] for way, found in servers.items()})
        rows = []
        for count in sizes:
            for clients in CLIENTS:
                if clients <= count <= LIMITS.steps * clients:
                    rows += _compared(servers, count, clients, seconds)
        address, pid = servers["recur"]
        load = {"before": before, "after": os.getloadavg()[0]}
        found = {"load": load, "over_websockets": rows, "in_process": engines, "first_token": _history(address)}
        return found | {"memory": _memory(address, pid)}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures in words."""
    for place in ("in_process", "over_websockets"):
        rows = {(row["way"], row["sessions"], row.get("clients", 0)): row for row in found[place]}
        for (way, count, clients), row in rows.items():
            ours = rows["recur", count, clients]
            times = ours["tokens_per_second"] / row["tokens_per_second"]
            waits = ""
            if "p50_ms" in row:
                used = row["server_cpu_us"]
                waits = f", p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms; {used:.1f} µs of CPU a token"
                waits += f" ({used / ours['server_cpu_us']:.1f} times recur's)"
            rate = f"{row['tokens_per_second']:>9,.0f} tokens/s{waits}"
            where = f"{clients} WebSockets" if clients else "in process"
            yield f"{where:13} {count:>6,} {way:18} {rate}; recur {times:.1f} times"
    first, memory = found["first_token"], found["memory"]
    behind, empty = first["behind_history_ms"], first["behind_nothing_ms"]
    yield f"first token behind {HISTORY:,} tokens {behind:.2f} ms, behind none {empty:.2f} ms"
    yield f"{memory['sessions']:,} sessions: {memory['megabytes']:.0f} MB"


def _train(folder: Path) -> Path:
    (folder / "book.txt").write_text((string.ascii_letters + string.digits + string.punctuation + " \n") * 40)
    sizes = ["--cell", "lstm", "--hidden-size", "256", "--num-layers", "1", "--embedding-size", "64"]
    command = [sys.executable, "-m", "recur", "train", str(folder / "book.txt"), *sizes, "--steps", "1"]
    command += ["--no-baseline", "-q", "--out", str(folder / "lstm")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "lstm"


@contextmanager
def _server(run: Path, way: str) -> Iterator[tuple[str, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "bench.serve_peer", str(run), way, str(port)])
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(30)


def _begin(client: httpx.Client, count: int) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        some = client.post("/v1/sessions", json={"n": min(1000, count - len(names))}).json()["data"]
        names += [each["id"] for each in some]
    return names


def _refuse_unequal(addresses: dict[str, str]) -> None:
    said = []
    for address in addresses.values():
        with httpx.Client(base_url=address, timeout=60) as client:
            (name,) = _begin(client, 1)
            outputs = []
            for k in range(5, 25):
                outputs += client.post(f"/v1/sessions/{name}/step", json={"input": k}).json()["outputs"]
            said.append([output["probability"] for output in outputs])
    if not all(np.allclose(said[0], other, atol=1e-5) for other in said[1:]):
        raise AssertionError("the ways do not agree, and are not timed")


def _compared(servers: dict[str, tuple[str, int]], count: int, clients: int, seconds: float) -> list[dict[str, Any]]:
    """The middle of a few rounds, in which the servers take turns."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in servers}
    for _ in range(ROUNDS if count <= 1000 else 1):
        for way, (address, pid) in servers.items():
            found[way].append(asyncio.run(_load(address, pid, count, clients, seconds / ROUNDS)))
    return [
        {"way": way, "sessions": count, "clients": clients}
        | {name: statistics.median(each[name] for each in seen) for name in seen[0]}
        for way, seen in found.items()
    ]


async def _load(address: str, pid: int, count: int, clients: int, seconds: float) -> dict[str, float]:
    with httpx.Client(base_url=address, timeout=120) as client:
        names = _begin(client, count)
        times: list[tuple[float, int]] = []
        end = time.perf_counter() + seconds

        async def line(own: list[str]) -> None:
            tokens = [5] * len(own)
            async with connect(address.replace("http", "ws") + "/v1/step", max_size=None, ping_interval=None) as socket:
                done = 0
                while time.perf_counter() < end or not done:
                    begun = time.perf_counter()
                    await socket.send(json.dumps({"sessions": own, "inputs": tokens}))
                    tokens = json.loads(await socket.recv())["labels"]
                    times.append((time.perf_counter() - begun, len(own)))
                    done += 1

        begun, used = time.perf_counter(), _cpu_seconds(pid)
        await asyncio.gather(*(line(names[k::clients]) for k in range(clients)))
        took, used = time.perf_counter() - begun, _cpu_seconds(pid) - used
        for name in names[:: max(1, len(names) // 1000)]:
            client.delete(f"/v1/sessions/{name}")
    waits = np.repeat([each for each, _ in times], [n for _, n in times])
    return {
        "p50_ms": float(np.percentile(waits, 50)) * 1e3,
        "p99_ms": float(np.percentile(waits, 99)) * 1e3,
        "tokens_per_second": len(waits) / took,
        "server_cpu_us": used / len(waits) * 1e6,
    }


def in_process(run: Path, sizes: tuple[int, ...], seconds: float) -> list[dict[str, Any]]:
    """The engine alone, without a server: all sessions step, over and over; ways taking turns."""
    torch.set_num_threads(1)
    hubs = {way: hub_of(run, way) for way in WAYS}
    rows = []
    for count in sizes:
        times: dict[str, list[float]] = {way: [] for way in hubs}
        slots = {way: [hub.models.get(None).pool.take() for _ in range(count)] for way, hub in hubs.items()}
        tokens = {way: [5] * count for way in hubs}
        end = time.perf_counter() + seconds * len(hubs)
        while time.perf_counter() < end or not times["recur"]:
            for way, hub in hubs.items():
                begun = time.perf_counter()
                tokens[way] = _turn(hub, slots[way], tokens[way])
                times[way].append(time.perf_counter() - begun)
        if len({tuple(found) for found in tokens.values()}) > 1:
            raise AssertionError("the ways do not agree")
        for way, seen in times.items():
            middle = statistics.median(seen)
            rows.append({"way": way, "sessions": count, "batch_ms": middle * 1e3, "tokens_per_second": count / middle})
    return rows


def _turn(hub: Any, slots: list[Any], tokens: list[int]) -> list[int]:
    news: RowEvents = []
    engine = Engine(news.extend)
    served = hub.models.get(None)
    engine.submit(StepBatch(served, slots, tokens, lambda event: None))
    with torch.no_grad():
        engine.turn()
    ((_, said),) = news
    assert isinstance(said, StepBatchOutput)
    return said.labels


def _history(address: str, tries: int = 40) -> dict[str, float]:
    """Milliseconds until the first token behind 100,000 tokens, and behind none, in turns."""
    with httpx.Client(base_url=address, timeout=120) as client:
        long, short = _begin(client, 2)
        text = [int(k) for k in np.random.default_rng(0).integers(4, 60, HISTORY)]
        begun = time.perf_counter()
        client.post(f"/v1/sessions/{long}/step", json={"input": text, "every": False}).raise_for_status()
        read = time.perf_counter() - begun
        times: dict[str, list[float]] = {long: [], short: []}
        for _ in range(tries):
            for name, seen in times.items():
                ask = {"prompt": "a", "max_tokens": 1, "session": name}
                begun = time.perf_counter()
                client.post("/v1/completions", json=ask).raise_for_status()
                seen.append(time.perf_counter() - begun)
        behind, empty = (statistics.median(times[name]) * 1e3 for name in (long, short))
    return {"behind_history_ms": behind, "behind_nothing_ms": empty, "reading_history_s": read}


def _memory(address: str, pid: int) -> dict[str, float]:
    """MB that 100,000 sessions take, of the whole process."""
    before = _resident(pid)
    with httpx.Client(base_url=address, timeout=120) as client:
        begun = time.perf_counter()
        names = _begin(client, HELD)
        seconds = time.perf_counter() - begun
    return {"sessions": len(names), "megabytes": _resident(pid) - before, "seconds": seconds}


def _cpu_seconds(pid: int) -> float:
    """What a process has used of all cores; unlike the clock's, this does not count what others do on them."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
