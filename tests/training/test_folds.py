"""Cross-validation: every example is tested once, by a run that has not seen it."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from recur.cli.app import run
from recur.data.text import read_labelled
from recur.errors import OptionError, TextError
from recur.runs import Run
from recur.tasks import make_options, options_of_run
from recur.tasks.common import splits
from recur.tasks.common.splits import split
from recur.training.cross_validation import cross_validate

LINES = [f"{'even' if k % 2 == 0 else 'odd'}\t{k} is {'so' if k % 2 == 0 else 'not so'} a number" for k in range(60)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "numbers.tsv").write_text("\n".join(LINES) + "\n")
    return str(tmp_path / "numbers.tsv")


def test_folds_part_the_examples(file: str) -> None:
    tested: list[str] = []
    for k in range(1, 5):
        options = make_options("classify", {"texts": [file], "fold": f"{k}/4"})
        train, valid, test = split(options, read_labelled)  # type: ignore[arg-type]
        assert (len(train), len(valid), len(test)) == (41, 4, 15)
        assert len({one.where for part in (train, valid, test) for one in part}) == 60
        assert splits.evaluation_set(options, read_labelled) == test  # type: ignore[arg-type]
        tested += [one.where for one in test]
    assert len(set(tested)) == len(tested) == 60


def test_figures_are_means_over_runs_on_what_they_have_not_seen(file: str, tmp_path: Path) -> None:
    options = make_options(
        "classify", {"texts": [file], "steps": 3, "threads": 1, "hidden_size": 4, "embedding_size": 4, "token": "word"}
    )
    told: list[str] = []
    found = cross_validate(options, 3, tmp_path / "runs", lambda row: told.append(row["fold"]))
    assert told == ["1/3", "2/3", "3/3"]
    assert found["folds"] == 3
    model, always, counted, bayes, linear = found["models"]
    assert (model["model"], bayes["model"]) == ("classify", "naive Bayes")
    assert linear["model"] == "TF-IDF logistic regression"
    assert always["model"].startswith("always ")
    assert counted["model"].endswith("-grams by class")
    accuracies = [row["accuracy"] for row in found["each"]]
    assert model["mean"]["accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert model["deviation"]["accuracy"] == pytest.approx(statistics.stdev(accuracies))
    assert sum(row["texts"] for row in found["each"]) == 60
    assert getattr(options_of_run(Run.open(tmp_path / "runs" / "fold-2")), "fold") == "2/3"  # noqa: B009


def test_what_cannot_be_folded_is_refused(file: str) -> None:
    with pytest.raises(OptionError, match="fold must be such as 3/10"):
        make_options("classify", {"texts": [file], "fold": "11/10"})
    with pytest.raises(OptionError, match="leave --test out"):
        make_options("classify", {"texts": [file], "fold": "1/10", "test": [file]})
    with pytest.raises(TextError, match="60 examples are too few for 40 folds"):
        split(make_options("classify", {"texts": [file], "fold": "1/40"}), read_labelled)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the task adding has none"):
        cross_validate(make_options("adding", {}), 3)
    with pytest.raises(OptionError, match=r"folds must be 2 … 1000, got 1"):
        cross_validate(make_options("classify", {"texts": [file]}), 1)
    with pytest.raises(OptionError, match="leave --test and --fold out"):
        cross_validate(make_options("classify", {"texts": [file], "fold": "1/3"}), 3)


def test_folds_at_the_command_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--steps", "2", "--threads", "1", "--out", str(Path(file).parent / "runs")]
    assert run(["train", file, "--task", "classify", "--folds", "2", *quick]) == 0
    shown = capsys.readouterr()
    assert "mean of 2 folds" in shown.out
    assert "fold 2/2" in shown.err
