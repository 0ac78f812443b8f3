"""The run folder: files, manifest, weights, checkpoints. What was trained is the tasks' business (recur.tasks)."""

from recur.run.device import pick_device
from recur.run.folder import Run, Vocabs, is_run, read_json, read_jsonl

__all__ = ["Run", "Vocabs", "is_run", "pick_device", "read_json", "read_jsonl"]
