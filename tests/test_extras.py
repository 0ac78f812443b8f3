"""Without any optional package recur imports, computes, and names the extra that is missing, in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

GROUPS = {"bench", "peers", "docs", "dev"}
"""Extras for work on recur itself; nothing in the package imports what they add."""

CODE = r"""
import importlib, json, sys
from pathlib import Path

for name in json.loads(sys.argv[1]):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError

import torch, recur
recur.Recurrent("gru", 3, 4)(torch.randn(2, 5, 3)).outputs.sum().backward()

def load(module, name=None):
    found = importlib.import_module("recur." + module)
    return found if name is None else getattr(found, name)

def tracker(name):
    return lambda: load("training.trackers", name)(Path("runs"), "language", {})


net = recur.Recurrent("gru", 3, 4)
cases = {
    "plot": [lambda: load("utils.files", "new_figure")(1)],
    "image": [lambda: load("data.images", "_by_pillow")(None, Path("a.png"))],
    "subword": [lambda: load("data.text.tokenizers", "_sentencepiece")()],
    "tensorboard": [tracker("TensorBoard")],
    "mlflow": [tracker("MLflow")],
    "wandb": [tracker("WandB")],
    "ray": [lambda: load("cli.engines", "_import_ray")()],
    "slurm": [lambda: load("cli.engines", "submit_job")(["train"], "local", Path("logs"), {})],
    "hub": [lambda: load("exchange.hub", "_download")("a/b", None, None, False)],
    "keras": [lambda: load("exchange.weights", "_from_keras")(Path("a.keras"))],
    "studio": [lambda: load("cli.studio", "studio")()],
    "serve": [lambda: load("cli.serve", "serve")([])],
    "export": [lambda: load("export", "export_step")(net, "onnx", "a.onnx")],
    "sklearn": [lambda: load("sklearn")],
    "sweep": [lambda: load("training.sweeps.search", "import_optuna")()],
    "tables": [
        lambda: load("data.text.tables", "_polars")("a.parquet"),
        lambda: load("data.text.sources", "_open_zstd")(Path("a.zst")),
    ],
    "rl": [lambda: load("rl")],
}
said = {}
for extra, calls in cases.items():
    for call in calls:
        try:
            call()
            said.setdefault(extra, []).append("nothing")
        except recur.RecurError as error:
            said.setdefault(extra, []).append(str(error))
        except Exception as error:
            said.setdefault(extra, []).append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""

MODULES = [
    "matplotlib", "PIL", "sentencepiece", "tensorboard", "mlflow", "wandb", "ray", "submitit", "huggingface_hub",
    "h5py", "starlette", "uvicorn", "pydantic", "websockets", "onnx", "onnxruntime", "onnxscript", "sklearn",
    "optuna", "polars", "zstandard", "sb3_contrib", "stable_baselines3", "gymnasium",
]  # fmt: skip


def test_each_extra_is_named_where_it_is_missing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(MODULES)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(said) == set(extras) - GROUPS
    for extra, lines in said.items():
        for line in lines:
            assert re.search(rf"\w is not installed: pip install 'recur\[{extra}\]'", line), f"{extra}: {line}"
            assert "\n" not in line
