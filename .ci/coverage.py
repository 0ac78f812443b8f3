"""Prints branch coverage by room, and refuses a file below the bar that CONTRIBUTING does not name with its reason."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

BAR = 85.0

report = json.loads(Path(sys.argv[1]).read_text())
listed = Path("CONTRIBUTING.md").read_text().partition("## Coverage")[2].partition("\n## ")[0]
rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
below = {}
for path, found in report["files"].items():
    name = path.partition("src/recur/")[2]
    summary = found["summary"]
    done = summary["covered_lines"] + summary["covered_branches"]
    every = summary["num_statements"] + summary["num_branches"]
    rooms[name.partition("/")[0]][0] += done
    rooms[name.partition("/")[0]][1] += every
    if every and 100 * done / every < BAR:
        below[name] = 100 * done / every
for room, (done, every) in sorted(rooms.items()):
    print(f"{room:14} {100 * done / max(every, 1):5.1f} %")
print(f"{'all':14} {report['totals']['percent_covered']:5.1f} %, lines and branches")
for name, share in sorted(below.items()):
    print(f"below {BAR:g} %: {name} {share:.1f} %" + ("" if f"`{name}`" in listed else "  (not in CONTRIBUTING)"))
sys.exit(any(f"`{name}`" not in listed for name in below))
