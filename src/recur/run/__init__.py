"""The run folder: files, manifest, weights, checkpoints. What was trained is the tasks' business (recur.tasks)."""

from recur.run.beginning import check_free, data_folder, is_run
from recur.run.device import pick_device
from recur.run.folder import Run, Vocabs
from recur.run.logs import read_json, read_jsonl
from recur.run.manifest import Fingerprint
from recur.run.trust import trust

__all__ = [
    "Fingerprint",
    "Run",
    "Vocabs",
    "check_free",
    "data_folder",
    "is_run",
    "pick_device",
    "read_json",
    "read_jsonl",
    "trust",
]
