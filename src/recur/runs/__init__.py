"""Run folder: files, manifest, weights, checkpoints and locks. Tasks (recur.tasks) know what was trained."""

from recur.runs.folder import Run, Vocabs, check_free, data_folder, is_run
from recur.runs.manifest import Fingerprint, read_json, read_jsonl, read_tail
from recur.runs.safe_dir import holder_of
from recur.runs.weights import (
    Precision,
    autocast_in,
    check_precision,
    matmul_precision,
    pick_device,
    pick_precision,
    use_threads,
)

__all__ = [
    "Fingerprint",
    "Precision",
    "Run",
    "Vocabs",
    "autocast_in",
    "check_free",
    "check_precision",
    "data_folder",
    "holder_of",
    "is_run",
    "matmul_precision",
    "pick_device",
    "pick_precision",
    "read_json",
    "read_jsonl",
    "read_tail",
    "use_threads",
]
