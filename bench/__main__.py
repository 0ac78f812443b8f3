"""python -m bench: a table of ratios against the peers, and the same as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import scan
from bench.side_by_side import compare, header, report, row

GRID = [(32, 35, 256)]
WIDE = [(32, 35, 32), (32, 35, 128), (32, 35, 256), (20, 35, 650), (1, 100, 256)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="how often each side of a pair runs (31)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts to time at (1 2)")
    parser.add_argument("--wide", action="store_true", help="more sizes")
    parser.add_argument("--match", default="", help="only rows whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("bench/results/scan.json"), help="where the JSON goes")
    options = parser.parse_args()

    results = []
    print(header())
    for contest in scan.contests(WIDE if options.wide else GRID):
        for threads in options.threads if options.match in contest.what else []:
            results.append(compare(contest, threads, options.rounds))
            print(row(results[-1]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report(results), indent=1) + "\n")
    print(f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
