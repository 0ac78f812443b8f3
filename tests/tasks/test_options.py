"""Options of tasks: one check for every door, defaults of their own, files, and what belongs to whom."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur.tasks
from recur.data.text import SPECIALS, Characters, Vocab
from recur.errors import CellError, OptionError
from recur.options import documentation, hints
from recur.tasks import config_text, make_options, name_of, options_class, read_config, task_class, task_names, task_of
from recur.tasks.common.contract import weight_bytes

EVERY = list(task_names())


def test_tasks_are_the_folders() -> None:
    folders = {path.parent.name for path in Path(recur.tasks.__file__).parent.glob("*/task.py")}
    assert set(EVERY) == folders
    assert {"language", "seq2seq", "classify", "tag", "tree", "forecast"} <= folders
    for task in EVERY:
        assert name_of(options_class(task)()) == task


@pytest.mark.parametrize("task", EVERY)
def test_every_option_has_help_and_its_default_passes_the_check(task: str) -> None:
    cls = options_class(task)
    assert set(hints(cls)) <= set(documentation(cls)), "a field without a docstring"
    for name in cls.names():
        assert getattr(cls(), name) == cls.default(name)


def test_options_need_no_torch() -> None:
    code = "import sys; from recur.tasks import options_class, task_names; [options_class(n) for n in task_names()]; "
    assert (
        subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], check=False).returncode == 0
    )


@pytest.mark.parametrize(
    ("task", "fields", "says"),
    [
        ("language", {"lr": 0.0}, "lr must be above 0, got 0.0"),
        ("language", {"lr": float("nan")}, "lr must be above 0"),
        ("language", {"epochs": float("inf")}, "epochs must be above 0, got inf"),
        ("language", {"grad_clip": -1.0}, "clip must not be negative, got -1.0"),
        ("language", {"batch_size": 2.5}, "batch_size must be a whole number ≥ 1"),
        ("language", {"batch_size": True}, "batch_size must be a whole number ≥ 1"),
        ("language", {"batch_size": "16"}, "batch_size must be a whole number ≥ 1"),
        ("language", {"hidden_size": "128"}, "hidden_size must be a whole number ≥ 1, got '128'"),
        ("language", {"seed": 2**63}, "seed must be a whole number in 0 … 2⁶³ − 1"),
        ("language", {"tie_weights": 1}, "tie_weights must be true or false, got 1"),
        ("language", {"cell": 3}, "cell must be text, got 3"),
        ("language", {"texts": 7}, "texts must be text, got 7"),
        ("language", {"texts": None}, "texts must be a list, got None"),
        ("language", {"optimizer": "lion"}, "unknown optimizer 'lion'; known: adam, adamw, asgd, sgd"),
        ("language", {"token": "char "}, "unknown token 'char '; did you mean 'char'?"),
        ("language", {"dropout_output": 1.5}, r"dropout_output must lie in 0 … 1, got 1.5"),
        ("language", {"seed": -1}, "seed must be a whole number in 0"),
        ("language", {"tie_weights": True, "embedding_size": 0}, "tied weights need an embedding"),
        ("language", {"jitter": True, "partition": "random"}, "jitter is for the sequential partition"),
        ("seq2seq", {"label_smoothing": 1.0}, "smoothing must lie in 0 … 1, and below 1"),
        ("seq2seq", {"embedding_size": 0}, "embedding must be a whole number ≥ 1"),
        ("seq2seq", {"condition": "none", "attention": "none"}, "leave nothing to know the source by"),
        ("forecast", {"quantiles": [0.9, 0.5]}, "quantiles must rise inside 0 … 1"),
        ("forecast", {"quantiles": ["half"]}, "quantiles must be a number, got 'half'"),
        ("forecast", {"lags": 3, "cell": "lstm"}, "--cell is for a state; --lags 3 has none"),
        ("adding", {"length": 1}, "at least 2 numbers"),
        ("conditional", {"stop": "source"}, "a label has no length"),
        ("language", {"lr": 10**400}, "lr must be above 0"),
        ("language", {"lr": np.ones(2)}, "lr must be above 0"),
        ("language", {"grad_clip_value": 1e308}, "clip_value must be at most 1e30"),
        ("language", {"minutes": 1e-308}, "minutes must be at least 1e-30"),
        ("adding", {"length": 2**31 - 1}, "length must be at most 100,000"),
        ("grid", {"size": 2**31 - 1}, "size must be at most 100,000"),
        ("language", {"init": "normal:1e300"}, "takes a number ≥ 0"),
        ("language", {"hidden_size": 10**5000}, "hidden_size must be at most 2⁵³, got some int"),
        ("language", {"num_layers": 10**9}, "layers must be at most 1000"),
        ("language", {"threads": 10**9}, "threads must be at most 1024"),
        ("language", {"batch_size": 2**40}, "batch_size must be at most 1,000,000"),
        ("language", {"forget_bias": float("inf")}, "forget_bias must be a number, got inf"),
        ("language", {"token": ["char"]}, "unknown token"),
        ("language", {"token": np.array(["char", "word"])}, "unknown token"),
        ("language", {"texts": ["a\udcff.txt"]}, "texts must be text in Unicode"),
        ("language", {"schedule": "nonmono:1e400"}, "schedule 'nonmono:1e400' is not one of"),
        ("language", {"schedule": "nonmono:0.5"}, "n whole"),
        ("language", {"bptt": "truncated:0"}, "bptt: truncated needs τ"),
        ("language", {"init": "normal:x"}, "initialisation 'normal:x'"),
        ("language", {"initial": "random:-1"}, "the initial state must be"),
        ("language", {"embedding_init": "uniform:0"}, "embedding_init must be scaled"),
        ("seq2seq", {"teacher_forcing": "sigmoid:0"}, "teacher 'sigmoid:0' is not one of"),
        ("tree", {"embedding_init": "flat"}, "embedding_init must be scaled"),
        ("language", {"cell": "grru"}, "unknown cell 'grru'; did you mean 'gru'?"),
        ("language", {"cell": "elman:activation=" + "-" * 10**5 + "1"}, "activation is too deeply nested"),
        ("language", {"device": "meta"}, "device must be auto, cpu, cuda or cuda:N, got 'meta'"),
        ("language", {"device": "vulkan:0"}, "device must be auto, cpu, cuda or cuda:N"),
        ("language", {"recurrence": "output", "cell": "gru"}, "--cell is for a recurrence between hidden states"),
        ("forecast", {"lags": 3, "cell": "gru"}, "--cell is for a state; --lags 3 has none"),
        ("forecast", {"time_origin": 10**30, "time_input": True}, "time_origin must be a whole number in ± 2⁵³"),
        (["language"], {}, "unknown task"),
        ("langage", {}, "unknown task 'langage'; did you mean 'language'?"),
        ("language", {"hiden": 1}, "unknown option 'hiden'; did you mean 'hidden_size'?"),
        ("language", {"horizon": 3}, "--horizon belongs to forecast; the task here is language"),
        ("seq2seq", {"window": 20}, "--window belongs to forecast and language; the task here is seq2seq"),
        ("tree", {"cell": "gru"}, "--cell belongs to adding, classify, conditional, .* and tag; the task here is tree"),
        ("adding", {"texts": "a.txt"}, "the task adding generates its data; leave a.txt out"),
    ],
)
def test_what_is_wrong_is_said_once_for_all_doors(task: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises((OptionError, CellError), match=says):
        make_options(task, fields)


def test_a_file_of_an_output_recurrence_does_not_name_what_it_has_no_use_for(tmp_path: Path) -> None:
    options = make_options("copy", {"recurrence": "output", "hidden_size": 5})
    (tmp_path / "c.toml").write_text(config_text(options, tmp_path))
    fields = read_config(tmp_path / "c.toml")
    assert "cell" not in fields
    assert "hidden_size" in fields
    assert make_options(str(fields.pop("task")), fields) == options


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hidden_size = [" + b"[" * 10**5, "too deeply nested"),
        (b"hidden_size = " + b"9" * 5000, "cannot be used as a configuration"),
        (b"hidden_size = \xff", "cannot be used as a configuration"),
        (b"# " + b"x" * (1 << 22), "more than 4,194,304 bytes"),
    ],
)
def test_a_file_that_is_no_configuration(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(OptionError, match=says):
        read_config(tmp_path / "c.toml")


def test_what_is_no_file_is_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.utils.files.PATIENCE", 0.02)
    os.mkfifo(tmp_path / "pipe")
    for name, says in (
        ("/dev/zero", "it is a device"),
        (str(tmp_path), "Is a directory"),
        (str(tmp_path / "pipe"), "nobody writes to this pipe"),
        ("a\0b", "its name holds a zero byte"),
        ("\ud800", "its name is not Unicode"),
    ):
        with pytest.raises(OptionError, match=f"cannot be used as a configuration: {says}"):
            read_config(Path(name))


@pytest.mark.parametrize("task", EVERY)
def test_the_weights_of_a_network_are_counted_before_they_are_made(task: str) -> None:
    """Beside the network itself; what no memory holds is refused with how much it is."""
    tokens = Vocab((*SPECIALS, "a", "b"), (1,) * 6, Characters())
    vocabs: Any = collections.defaultdict(lambda: tokens, dict.fromkeys(("columns", "known", "past"), tokens))
    own = {"forecast": {"season": 1, "horizon": 1, "target": ["y"]}}
    own["grid"] = {"pixel_mean": [0.1], "pixel_deviation": [1.0]}
    made = task_of(make_options(task, {"hidden_size": 7, **own.get(task, {})}))
    before = torch.get_rng_state()
    counted = weight_bytes(lambda: made.new_model(vocabs))
    assert torch.equal(before, torch.get_rng_state())
    model = made.new_model(vocabs)
    assert counted == sum(p.nbytes for p in (*model.parameters(), *model.buffers()))
    huge = task_of(make_options(task, {"hidden_size": 99999999999, **own.get(task, {})}))
    with pytest.raises(OptionError, match="has weights of .* GiB, and this machine has .* GiB"):
        huge.check_size(vocabs)


def test_values_are_held_as_their_types() -> None:
    options: Any = make_options(
        "language", {"texts": Path("a.txt"), "lr": 1, "hidden_size": np.int64(8), "valid": ["v.txt"], "forget_bias": 2}
    )
    assert options.texts == ("a.txt",)
    assert (options.lr, type(options.lr)) == (1.0, float)
    assert (options.hidden_size, type(options.hidden_size)) == (8, int)
    assert options.valid == ("v.txt",)
    assert options.forget_bias == 2.0


def test_what_is_left_open_is_settled_once() -> None:
    cls = options_class("language")
    on_cpu, on_gpu = cls().settled("cpu"), cls().settled("cuda")
    assert (on_cpu.batch_size, on_gpu.batch_size) == (cls.cpu_batch, 4 * cls.cpu_batch)
    assert on_cpu.minutes == cls.default_minutes == 1.0
    assert on_cpu.weight_decay == cls.adamw_decay
    assert cls(optimizer="sgd").settled("cpu").weight_decay == 0.0
    assert cls(steps=3).settled("cpu").minutes is None
    assert cls(batch_size=5, minutes=7).settled("cuda").batch_size == 5
    assert options_class("tag").default_minutes == 3.0
    assert all(options_class(task).default_minutes == 2.0 for task in EVERY if task not in ("language", "tag"))


def test_defaults_by_token_leave_what_was_said(tmp_path: Path) -> None:
    cls: Any = task_class("classify")
    names, sentences = tmp_path / "names.tsv", tmp_path / "sentences.tsv"
    names.write_text("a\tSmith\nb\tJones\n" * 20)
    sentences.write_text("a\tthis is a sentence\nb\tand this is another one\n" * 20)
    found = cls.settle(make_options("classify", {"texts": str(names)}))
    assert (found.token, found.hidden_size, found.epochs, found.minutes) == ("char", 128, 12.0, 2.0)
    found = cls.settle(make_options("classify", {"texts": str(sentences)}))
    assert (found.token, found.hidden_size, found.lr, found.epochs) == ("word", 128, 0.002, 6.0)
    found = cls.settle(make_options("classify", {"texts": str(sentences), "embedding_size": 64, "steps": 9}))
    assert (found.token, found.embedding_size, found.lr) == ("word", 64, 0.002), (
        "64 was said, though it is a default too"
    )
    assert (found.epochs, found.minutes) == (None, None)
    found = cls.settle(make_options("classify", {"texts": str(sentences), "token": "char"}))
    assert (found.token, found.embedding_size) == ("char", 64)


def test_options_survive_their_file(tmp_path: Path) -> None:
    options: Any = make_options(
        "forecast",
        {"texts": ['a "b".csv', "/abs/ü.csv"], "quantiles": (0.2, 0.5), "epochs": 2.5, "forget_bias": 1.0, "date": "t"},
    )
    (tmp_path / "c.toml").write_text(config_text(options, tmp_path), encoding="utf-8")
    fields = read_config(tmp_path / "c.toml")
    assert fields.pop("task") == "forecast"
    again: Any = make_options("forecast", fields)
    assert [Path(name).resolve() for name in again.texts] == [Path(name).resolve() for name in options.texts]
    assert again.changed(texts=()) == options.changed(texts=())


def test_paths_in_a_configuration_are_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner").mkdir()
    content = 'texts = ["book.txt", "pydoc"]\nvalid = "../v.txt"\ncell = "mine.py:Cell"\n'
    Path("inner/c.toml").write_text(content)
    fields = read_config(Path("inner/c.toml"))
    assert fields["texts"] == ["inner/book.txt", "pydoc"]
    assert fields["valid"] == ["v.txt"]
    assert fields["cell"] == "inner/mine.py:Cell"
    Path("inner/c.toml").write_text('cell = "mine.py:Cell:alpha=0.5"\n')
    assert read_config(Path("inner/c.toml"))["cell"] == "inner/mine.py:Cell:alpha=0.5"
    Path("inner/c.toml").write_text(content)
    Path("deep/er").mkdir(parents=True)
    Path("deep/er/link").symlink_to(tmp_path / "inner")
    assert read_config(Path("deep/er/link/c.toml"))["valid"] == ["v.txt"], "a link's folder is where it leads"
    options = make_options("language", fields)
    assert 'cell = "../inner/mine.py:Cell"' in config_text(options, Path("runs"))
    assert 'texts = ["../inner/book.txt", "pydoc"]' in config_text(options, Path("runs"))
