"""The run folder: files, manifest, weights, checkpoints. What was trained is the tasks' business (recur.tasks)."""

from recur.run.beginning import check_free, data_folder, is_run
from recur.run.device import pick_device
from recur.run.folder import Run, Vocabs
from recur.run.lock import holder_of
from recur.run.logs import read_json, read_jsonl
from recur.run.manifest import Fingerprint
from recur.run.precision import Precision, check_precision, computing_in, pick_precision, products_of
from recur.run.trust import trust

__all__ = [
    "Fingerprint",
    "Precision",
    "Run",
    "Vocabs",
    "check_free",
    "check_precision",
    "computing_in",
    "data_folder",
    "holder_of",
    "is_run",
    "pick_device",
    "pick_precision",
    "products_of",
    "read_json",
    "read_jsonl",
    "trust",
]
