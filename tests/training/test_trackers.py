"""Experiment trackers: each receives the options and every evaluation, offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recur
from recur.errors import OptionError
from recur.training import Tracker, resume
from recur.training.events import Event


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(tracker: Tracker) -> Any:
    texts, labels = ["good", "bad", "fine"] * 20, ["pos", "neg", "pos"] * 20
    options: dict[str, Any] = {"hidden_size": 8, "steps": 4, "seed": 1, "checkpoint_every": 0, "baseline": False}
    return recur.fit(texts, labels, task="classify", out="runs/one", callback=tracker, **options)


def test_an_unknown_tracker_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match="unknown tracker 'mlfow'; did you mean 'mlflow'"):
        Tracker("mlfow")


def test_a_tracker_without_a_run_closes(here: Path) -> None:
    tracker = Tracker("tensorboard")
    tracker(Event("progress", {"step": 1, "train_loss": 1.0}))  # before a run started
    tracker.close()


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_has_every_evaluation_and_a_resumed_run_continues(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((here / "mlruns").as_uri())
    model = train(Tracker("mlflow"))
    resume("runs/one", steps=2, callback=Tracker("mlflow"))
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert found.data.params["task"] == "classify"
    assert found.data.params["hidden_size"] == "8"
    measured = [entry["valid_loss"] for entry in recur.load("runs/one").run.metrics()]
    logged = mlflow.MlflowClient().get_metric_history(found.info.run_id, "valid_loss")
    assert sorted(one.value for one in logged) == pytest.approx(sorted(measured))
    assert model.run.path.name == found.info.run_name


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(Tracker("wandb"))
    assert list(Path("runs/one/wandb").glob("offline-run-*/*.wandb"))
    assert json.loads(json.dumps(Path("runs/one/wandb.id").read_text().strip()))
