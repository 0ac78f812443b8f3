"""All tests of the GPU in several processes at once: `python -m tests.cuda.parallel [WORDS] [--jobs 14] [--minutes 4]`.

For machines without pytest-xdist: tests are dealt out one by one, and what failed is said at the end. Kernels that one
process compiled, the others find in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

PLAIN = ["-o", "addopts=", "-o", "timeout=0", "-p", "no:cacheprovider", "-q", "-m", "cuda"]


def pytest(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *PLAIN, *arguments]


def collected(paths: list[str], words: str) -> list[str]:
    asked = pytest(["--collect-only", *(["-k", words] if words else []), *paths])
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    names = [line for line in found.stdout.splitlines() if "::" in line]
    if not names:
        raise SystemExit(f"no tests were found:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="?", default="", help="as pytest -k")
    parser.add_argument("--paths", nargs="+", default=["tests/cuda"])
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--out", type=Path, default=None, help="a folder for every process's whole output")
    options = parser.parse_args()
    begin = time.perf_counter()
    names = collected(options.paths, options.words)
    out = options.out or Path("tests-of-the-gpu")
    out.mkdir(parents=True, exist_ok=True)
    logs, running = [], []
    for k in range(min(options.jobs, len(names))):
        logs.append(out / f"tests-{k}.log")
        command = pytest(["--tb=short", "-rfE", "--durations=3", *names[k :: options.jobs]])
        running.append(subprocess.Popen(command, stdout=logs[-1].open("w"), stderr=subprocess.STDOUT))
    late = 0
    for process in running:
        try:
            process.wait(max(1.0, begin + 60 * options.minutes - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()
            late += 1
    counts: dict[str, int] = {}
    failed: list[str] = []
    for log in logs:
        text = log.read_text(errors="replace")
        failed += re.findall(r"^(?:FAILED|ERROR) .*", text, flags=re.MULTILINE)
        for number, what in re.findall(r"(\d+) (passed|failed|skipped|error)", text.strip().rpartition("\n")[2]):
            counts[what] = counts.get(what, 0) + int(number)
    (out / "tests.json").write_text(json.dumps({"counts": counts, "failed": failed, "not ended": late}, indent=1))
    for line in failed[:60]:
        print(line[:230])
    said = ", ".join(f"{number} {what}" for what, number in counts.items())
    print(f"{len(names)} tests: {said}; {late} of {len(logs)} processes not ended; {time.perf_counter() - begin:.0f} s")
    return 1 if failed or late else 0


if __name__ == "__main__":
    sys.exit(main())
