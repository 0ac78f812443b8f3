"""python -m campaigns NAME: make all attempts of a campaign, and say which failed and how to repeat them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from campaigns.campaign import load, names


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns", description=_described(), allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("name", choices=names(), help="which campaign")
    parser.add_argument("--tries", type=int, help="how many attempts; the long form's number, if not given")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other attempts (0)")
    parser.add_argument("--only", type=int, nargs="+", help="attempts of these numbers alone: repeats a failure")
    parser.add_argument("--out", type=Path, help="a JSON file for what was found")
    given = parser.parse_args()
    campaign = load(given.name)
    numbers = given.only or range(campaign.TRIES if given.tries is None else given.tries)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # hostile names have surrogates
    begun, tried, failures = time.monotonic(), 0, []
    for attempt in campaign.attempts(given.seed, numbers):
        tried += 1
        if attempt.failure is not None:
            failures.append(attempt._asdict())
            print(f"{attempt.what}: {attempt.failure}", flush=True)
            print(f"  again: python -m campaigns {given.name} --seed {given.seed} --only {attempt.number}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{given.name}: {tried} tries, {len(failures)} failures, seed {given.seed}, {seconds:.0f} s")
    if given.out is not None:
        found = {"campaign": given.name, "seed": given.seed, "tries": tried, "seconds": seconds, "failures": failures}
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return bool(failures)


def _described() -> str:
    lines = [f"  {name:10}{(load(name).__doc__ or '').splitlines()[0]}" for name in names()]
    return "\n".join(["What a user's bad day may bring, tried many times.", "", *lines])


if __name__ == "__main__":
    raise SystemExit(main())
