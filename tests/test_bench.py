"""The benchmark of defaults covers every task, compares like with like, and says where something plain is better; that
of a GPU times nothing that is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import bands, calls, carry, gpu, gpu_floor, gpu_sides, gpu_training, peers, sizing, truncation
from bench.datasets import DataSet, data_sets
from bench.defaults import Row, Trained, as_json, line, recipe_fields, rows
from recur.tasks import make_options, name_of, options_class, read_config, task_names
from recur.tasks.common.contract import Baseline

RECIPES = Path(__file__).parent.parent / "recipes"


def test_every_task_is_measured(tmp_path: Path) -> None:
    assert {data_set.task for data_set in data_sets(tmp_path, tmp_path)} == set(task_names())


def test_recipes_are_asked_the_same_question_as_the_default(tmp_path: Path) -> None:
    for data_set in data_sets(tmp_path, tmp_path):
        if not data_set.recipe:
            continue
        assert read_config(RECIPES / data_set.recipe)["task"] == data_set.task
        settled = make_options(data_set.task, {}).settled("cpu")
        fields = recipe_fields(data_set.recipe, settled) | data_set.fields
        options = make_options(data_set.task, {**fields, "minutes": 1.0})
        assert (options.epochs, options.steps, options.minutes) == (None, None, 1.0)
    tang = make_options("language", recipe_fields("tang.toml", options_class("language")()))
    assert (name_of(tang), getattr(tang, "min_freq")) == ("language", 1)  # noqa: B009


def test_pairs_are_what_they_are_called(tmp_path: Path) -> None:
    found = {data_set.name: data_set for data_set in data_sets(tmp_path, tmp_path)}
    for name, target in (("reverse 10 letters", lambda w: w[::-1]), ("sort 10 letters", lambda w: "".join(sorted(w)))):
        pairs = [line.split("\t") for line in Path(found[name].texts[0]).read_text().splitlines()]
        assert len(pairs) == 10_000
        assert all(len(source) == 10 and made == target(source) for source, made in pairs)


def test_a_data_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    (found,) = rows(["tag"], tmp_path, None, 1)
    assert isinstance(found, DataSet)
    assert found.missing.endswith("chunking/train.conll")


def test_a_task_without_a_file_makes_a_row(tmp_path: Path) -> None:
    (found,) = rows(["adding"], tmp_path, 0.0005, 2)
    assert isinstance(found, Row)
    assert found.recipe is not None
    assert len(found.default.values) == len(found.recipe.values) == 2
    assert [baseline.value for baseline in found.plain] == [pytest.approx(1 / 6)]
    assert as_json(found)["minutes"] == 0.0005
    assert "mean squared error ↓" in line(found)


@pytest.mark.parametrize(("value", "worse"), [(1.0, True), (3.0, False)])
def test_what_is_worse_depends_on_the_metric(value: float, worse: bool) -> None:
    row = Row(DataSet("seq2seq", "pairs"), "valid_bleu", Trained([value], [1.0], []), plain=[Baseline("copy", 2.0)])
    assert row.worse_than == (["copy"] if worse else [])
    lower = Row(row.data_set, "valid_mase", row.default, plain=row.plain)
    assert lower.worse_than == ([] if worse else ["copy"])
    assert ("✗" in line(row)) == worse


def test_what_truncation_leaves_of_the_gradient() -> None:
    """The bounds that hold of any model: full is itself, and a longer way back is nearer to it."""
    found = truncation.quality("elman", steps=2, T=60, rows=2)
    assert found.keys() == truncation.MODES.keys()
    assert found["full"] == pytest.approx({"cosine": 1.0, "norm": 1.0, "cosine of the mean": 1.0}, rel=1e-5)
    for tau in truncation.WINDOWS:
        assert found[f"sliding:{tau}"]["cosine"] >= found[f"truncated:{tau}"]["cosine"] - 1e-6
    cost = truncation.costs("elman", B=1, T=60, H=2, rounds=2)
    assert cost.keys() == truncation.MODES.keys()
    assert cost["sliding:50"]["mib"] > 5 * cost["truncated:50"]["mib"]
    written = "\n".join(truncation.lines(cost, found))
    assert written.count("\n") == len(truncation.MODES)


def test_few_examples_show_every_label_and_none_of_them_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {k}" for k in range(60)]
    examples = [carry.Example(text, f"{k % 7}\t{text}\n", frozenset([str(k % 7)])) for k, text in enumerate(texts)]
    made = carry.DataSet("classify", lambda data, part: examples, {}, "accuracy")
    monkeypatch.setitem(carry.SETS, "made", made)
    drawn = {}
    for seed in (0, 1):
        files = carry.write_files(tmp_path / str(seed), tmp_path, "made", "valid", seed, 20)
        train, valid = (Path(name).read_text().splitlines() for name in (files.train, files.valid))
        assert (len(train), len(valid)) == (20, 20)
        assert len({line.split("\t")[0] for line in train}) == 7
        assert not {*train} & {*valid}
        assert Path(files.texts).read_text().splitlines() == texts
        drawn[seed] = train
    assert drawn[0] != drawn[1]


def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[int, list[dict[str, Any]]]:
    """The benchmark of a GPU, on the CPU: the same way through, but for the clock."""
    monkeypatch.setattr(gpu, "DTYPES", (torch.float32,))
    given = {
        "match": [],
        "shape": [(2, 3, 4)],
        "backend": "loop",
        "rounds": 3,
        "seconds": 0.1,
        "autograd_threads": False,
        "compile_only": False,
        "compiled": False,
    } | options
    written: list[Any] = []
    refused = gpu.measure(argparse.Namespace(**given), written.append, "cpu")
    return refused, written[-1]["results"]


def test_rows_of_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    refused, rows = on_cpu(tmp_path, monkeypatch)
    assert refused == 0
    assert [row["what"] for row in rows] == [
        f"{name} float32, B 2 T 3 H 4" for name in ("elman", "gru", "lstm", "own GRU", "peephole")
    ]
    assert all(row["way"] == "loop" for row in rows)
    assert {"grad x", "grad weight_hh", "outputs, forward alone"} <= set(rows[1]["off"])
    printed = capsys.readouterr().out
    assert "float32 beside cuDNN: forward + backward" in printed
    assert "float32 beside the built-in cell" in printed


def test_what_differs_from_the_peer_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = gpu_sides.Ours.__call__

    def slightly_off(self: gpu_sides.Ours, backward: bool) -> Any:
        found = run(self, backward)
        return found | {"grad x": found["grad x"] * 1.02} if backward else found

    monkeypatch.setattr(gpu_sides.Ours, "__call__", slightly_off)
    refused, (row,) = on_cpu(tmp_path, monkeypatch, match=["gru", "H 4", "gru float32"])
    assert refused == 1
    assert "both" not in row
    assert "grad x is off by 0.02; what is wrong is not timed" in capsys.readouterr().out


def test_the_floor_of_a_layer() -> None:
    small = gpu_floor.Problem(4, 64, 256, 64, 64, torch.bfloat16)
    assert (small.holders, gpu_floor.exchange(small, False)) == (1, 0.0)
    middle = small._replace(D=512, H=512)
    assert middle.holders == 7
    assert middle.rows == 8
    assert gpu_floor.floor(middle, False) == (pytest.approx(0.446), "exchange")
    large = gpu_floor.Problem(4, 256, 256, 1024, 1024, torch.bfloat16)
    microseconds, by = gpu_floor.floor(large, True)
    assert (by, microseconds) == ("arithmetic", pytest.approx(2 * large.flops / 730e12 * 1e6))
    assert gpu_floor.between({0: 1.0, 10: 2.0, 20: 4.0}, 25) == pytest.approx(5.0)


def test_where_cudnn_keeps_its_weights() -> None:
    assert gpu.persistent("lstm", (64, 256, 512), torch.float16)
    for cell, shape, dtype in (
        ("gru", (64, 256, 512), torch.float16),
        ("lstm", (64, 256, 512), torch.bfloat16),
        ("lstm", (20, 35, 650), torch.float16),
        ("lstm", (256, 256, 1024), torch.float16),
    ):
        assert not gpu.persistent(cell, shape, dtype)


def test_a_shape_is_three_numbers() -> None:
    assert gpu.shape_of("64,256,512") == (64, 256, 512)
    with pytest.raises(argparse.ArgumentTypeError, match="B,T,H such as 64,256,512"):
        gpu.shape_of("64,256")


def test_bands_that_roll_follow_what_comes_and_others_do_not() -> None:
    """Noise that is four times as wide from the test part on; what was calm before still counts."""
    y = np.random.default_rng(0).normal(size=4000)
    y[3600:] *= 4
    once, again = bands.measured(bands.One("noise", y, 1, 2))
    assert once.coverage < again.coverage < 0.8
    assert again.width > once.width
    assert again.score < once.score
    still, moved = bands.measured(bands.One("noise", y[:3600], 1, 2))
    assert still.coverage == pytest.approx(0.8, abs=0.09)  # three deviations of a share of 360, and of as many before
    assert moved.coverage == pytest.approx(0.8, abs=0.09)


def test_training_steps_on_a_gpu_and_by_hand_are_of_one_size() -> None:
    """What is timed there, taken on the CPU: as many numbers are learned, and each part of a step can be taken."""
    small = {"hidden_size": 16, "top_hidden_size": 8, "embedding_size": 8, "window": 5}
    case = gpu_training.Case(30, 4, {**gpu_training.AWD, **small}, "float32", "cpu")
    for side in (case.eager(), case.by_hand()):
        assert side.tokens == 20
        for _ in range(2):
            side.step()
    parts = case.parts()
    assert all(least >= 0 for _, least in parts.values())
    for call, _ in parts.values():
        call()
    row = {"case": "awd", "precision": "float32", "B": 4, "T": 5, "step_us": 10.0}
    row |= {
        "tokens_per_second": {"recur": 2e3, "by hand": 1e3},
        "parts": {"loss": {"us": 5, "share": 0.5, "floor_us": 1}},
    }
    first, second = gpu_training.report(row)
    assert first.endswith("2.00 × by hand")
    assert "50.0%" in second


def test_a_sweep_draws_the_same_trials_again_and_never_of_texts_that_were_fitted_on() -> None:
    assert not {case.text for case in sizing.FITTED} & {case.text for case in sizing.HELD_OUT}
    for which, case in (("fitted", sizing.FITTED[0]), ("held-out", sizing.HELD_OUT[0])):
        made = sizing.trials(which, 4)
        assert len({trial.key for trial in made}) == len(made)
        assert all(sum(t.case == case and t.kind == kind for t in made) for kind in ("rule", "default"))
    sweep = [trial for trial in made if trial.kind == "sweep"]
    assert len(sweep) == 30 * len(sizing.HELD_OUT)
    for trial in sweep[:20]:
        fields = sizing.drawn(trial)
        assert fields == sizing.drawn(sizing.Trial(trial.case, "sweep", trial.seed))
        make_options("language", {**fields, "texts": ("book.txt",), "token": trial.case.token})
        make_options("language", sizing.moved(make_options("language", fields), trial))


def test_the_rule_is_compared_with_the_best_of_a_sweep() -> None:
    sizes = dict.fromkeys(sizing.SIZES, 1)
    rows = [{"case": "a", "kind": kind, "perplexity": p, **sizes} for kind, p in (("sweep", 5.0), ("sweep", 4.0))]
    rows += [{"case": "a", "kind": "rule", "perplexity": p} for p in (4.0, 4.2)]
    rows += [{"case": "a", "kind": "sweep", "perplexity": None}, {"case": "b", "kind": "sweep", "perplexity": 2.0}]
    (found,) = sizing.compared(rows)
    assert (found["best"], found["trials"], found["ratio"]) == (4.0, 2, pytest.approx(1.025))
    assert "| a |  | 4.100 (4.000 … 4.200) | 4.000 (of 2) | 1.025 |" in list(sizing.table([found]))


def test_peers_find_a_difference_and_name_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    value = torch.tensor([3.0, -4.0])
    assert peers.relative_difference(value, value.clone()) == 0
    assert peers.relative_difference(-value, value) == 2
    assert peers.relative_difference(value[:1], value) == float("inf")
    assert peers.relative_difference(value / 0, value) == float("inf")
    assert peers.main(["lstm=nowhere"]) == 2
    assert "expected NAME=FOLDER, got lstm=nowhere" in capsys.readouterr().err


def test_one_step_of_a_cell_is_timed_beside_torchs() -> None:
    threads = torch.get_num_threads()
    found = calls.one_step("GRUCell", 2, 4, 1)
    torch.set_num_threads(threads)  # it measures one
    assert list(found) == ["forward", "forward and back"]
    assert all(us.keys() == {"ours", "torch.nn"} for us in found.values())
