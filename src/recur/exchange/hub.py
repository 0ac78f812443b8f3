"""Saved models in the layout of the Hugging Face Hub: a run without its checkpoints and training data.

    config.json          model type, task and options, as libraries of the Hub read them
    README.md            the model card, with the metadata of the Hub on top
    model.safetensors    the weights
    manifest.json, config.toml, vocab.json, cell.py, metrics.jsonl, baselines.json   as in a run

Every command reads such a folder as it reads a run. Names of training files lose their folders.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recur import __version__
from recur.errors import OptionError, RecurError, RunError, shown
from recur.runs import Run, is_run
from recur.runs.folder import BASELINES, CELL, WEIGHTS
from recur.runs.manifest import MANIFEST_FILE
from recur.tasks.common.model_card import card_markdown, changed_options, make_card
from recur.tasks.common.registry import ORIGINS, PATHS, config_text
from recur.tasks.common.runs import options_of_run

if TYPE_CHECKING:
    from recur.tasks.common.predictor import Predictor

PIPELINES = {
    "language": "text-generation",
    "conditional": "text-generation",
    "seq2seq": "translation",
    "classify": "text-classification",
    "tag": "token-classification",
    "tree": "text-classification",
    "grid": "image-classification",
    "forecast": "time-series-forecasting",
}
"""Pipeline tag of the Hub for each task."""

HUB_CONFIG, CARD = "config.json", "README.md"


def save_pretrained(predictor: Predictor[Any], folder: str | Path) -> Path:
    """Save a model without its checkpoints and training data, and return the folder."""
    path = Path(folder)
    if len(predictor.runs) > 1:
        raise OptionError("an ensemble is several runs: save each of them")
    if is_run(path):
        raise RunError(f"{path} already holds a model; name another folder")
    source = predictor.run
    options = options_of_run(source)
    bare = {name: type(options).default(name) for name in (*PATHS, *ORIGINS) if name in options.names()}
    cell = source.cell_source()
    run = Run.create(path, source.task, config_text(options.changed(**bare), source.path), source.vocabs, cell)
    try:
        for name in (WEIGHTS, BASELINES):
            if name in source.manifest.files:
                run.replace(name, source.read(name, most=1 << 40))
        for entry in source.metrics():
            run.log(entry)
        run.commit()
        # These two are for people and the Hub, who edit them: the manifest does not vouch for them.
        run.dir.write(HUB_CONFIG, _hub_config(predictor).encode())
        run.dir.write(CARD, _card(predictor, path).encode())
    finally:
        run.release()
    shutil.rmtree(path / "resume", ignore_errors=True)
    return path


def _hub_config(predictor: Predictor[Any]) -> str:
    task = predictor.task
    found = {
        "model_type": "recur",
        "library_name": "recur",
        "recur_version": __version__,
        "task": task.name,
        "architectures": [task.architecture],
        "options": changed_options(task.options),
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _card(predictor: Predictor[Any], path: Path) -> str:
    """Return the model card with the metadata of the Hub on top."""
    found = make_card(predictor)
    found["name"], found["run"] = path.resolve().name, path.name
    for files in found["data"].values():
        for file in files:
            file["name"] = Path(file["name"]).name
    found["use"] = {
        "command": f"recur {predictor.task.verb} {path.name}",
        "python": f'recur.from_pretrained("{path.name}")',
    }
    tags = ["recur", "recurrent-neural-network", predictor.task.name]
    lines = ["library_name: recur", "tags:", *(f"  - {tag}" for tag in tags)]
    if found["task"] in PIPELINES:
        lines.insert(1, f"pipeline_tag: {PIPELINES[found['task']]}")
    return "\n".join(["---", *lines, "---", ""]) + "\n" + card_markdown(found, predictor.task)


# Loading ---------------------------------------------------------------------------------------------------------

HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


def pretrained_folder(
    name: str | Path, revision: str | None = None, cache_dir: str | Path | None = None, local_files_only: bool = False
) -> tuple[Path, bool]:
    """Return the folder of a saved model, and whether it is a temporary copy.

    `name` is a folder or an id of the Hub, whose files are copied out of the cache: the cache contains links, which a
    run must not.
    """
    path = Path(name)
    if path.is_dir():
        return path, False
    if not isinstance(name, str) or not HUB_ID.fullmatch(name):
        raise RunError(f"no folder {shown(str(name))}, and no id of the Hugging Face Hub (owner/name)")
    snapshot = _download(name, revision, cache_dir, local_files_only)
    copy = Path(tempfile.mkdtemp(prefix="recur-"))
    for file in snapshot.iterdir():
        if file.is_file():
            shutil.copyfile(file, copy / file.name)
    if not is_run(copy):
        shutil.rmtree(copy)
        raise RunError(f"{name} on the Hub is not a model of recur: it has no {MANIFEST_FILE}")
    return copy, True


def _download(name: str, revision: str | None, cache_dir: str | Path | None, local_files_only: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise RecurError("huggingface_hub is not installed: pip install 'recur[hub]'") from None
    try:
        found = snapshot_download(
            name,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=["*.json", "*.jsonl", "*.toml", "*.safetensors", CARD, CELL],
        )
    except LocalEntryNotFoundError:
        raise RecurError(f"{name} is not in the local cache, and the Hub was not reached") from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise RecurError(f"{name} was not downloaded: {str(error).splitlines()[0]}") from None
    return Path(found)
