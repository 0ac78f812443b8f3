"""recur.fit and recur.load: the same training as the command line's, and nothing left behind."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import recur
from recur.cli.app import run
from recur.errors import OptionError, RecurError, RunError, TextError
from recur.training import Event, resume
from tests.cli.test_cli import json_of

FIELDS: dict[str, Any] = {
    "precision": "float32",
    "hidden_size": 8,
    "batch_size": 4,
    "window": 10,
    "steps": 12,
    "threads": 1,
    "seed": 3,
}


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("the network reads a word and the word is kept\n" * 60)
    return "book.txt"


def test_fit_and_train_are_one(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for name, value in FIELDS.items() for word in (f"--{name}", str(value))]
    printed = json_of(capsys, "train", book, *flags, "--out", "a")
    events: list[Event] = []
    recur.fit(book, out="b", callback=events.append, **FIELDS)
    assert sorted(p.name for p in Path("a").iterdir()) == sorted(p.name for p in Path("b").iterdir())
    for name in ("config.toml", "vocab.json", "baselines.json", "samples.jsonl", "model.safetensors"):
        assert (Path("a") / name).read_bytes() == (Path("b") / name).read_bytes(), name
    finished = events[-1].content
    timed = {"run", "seconds", "measuring_seconds", "last_measuring_seconds", "predictions_per_second"}
    assert {k: v for k, v in finished.items() if k not in timed} == {k: v for k, v in printed.items() if k not in timed}
    kinds = [event.kind for event in events]
    assert kinds[:3] == ["data", "baseline", "started"]
    assert kinds.count("measured") == 10


def test_fit_leaves_the_process_as_it_was(book: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    torch.set_num_threads(2)
    try:
        torch.manual_seed(5)
        before = torch.get_rng_state()
        model = recur.fit(book, **FIELDS)
        assert torch.get_num_threads() == 2
        assert torch.equal(before, torch.get_rng_state())
        folder = model.run.path
        assert (folder / "config.toml").exists(), "as long as the model is there"
        del model
        gc.collect()
        assert not folder.exists()
        with pytest.raises(OptionError):
            recur.fit(book, cell="gru", init="wild", steps=1)
        assert list((tmp_path / "temporary").iterdir()) == []
    finally:
        torch.set_num_threads(1)


def test_what_the_machine_decides_is_kept_and_said(book: str) -> None:
    events: list[Event] = []
    model = recur.fit(book, callback=events.append, **{**FIELDS, "threads": 0, "precision": None})
    options = model.task.options
    said = [event.content["text"] for event in events if event.kind == "note"]
    assert options.precision is not None
    assert any(options.precision in text for text in said) == (options.precision != "float32")
    assert options.threads >= 1
    assert options.batch_size == 4
    assert options.device in ("cpu", "cuda")
    if options.device == "cpu":
        assert any(f"--threads {options.threads}" in e.content["text"] for e in events if e.kind == "note")


def test_resume_compares_with_the_baseline_again(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    recur.fit(book, out="r", **FIELDS)
    more = json_of(capsys, "resume", "r", "--steps", "3")
    assert more["steps"] == 15
    assert more["baselines"][0]["name"].endswith("-gram")
    assert run(["resume", "r", "--steps", "2"]) == 0
    shown = capsys.readouterr()
    assert "baseline:" in shown.err
    assert "-gram" in shown.out
    with pytest.raises(OptionError, match="minutes must be above 0"):
        resume("r", minutes=-1)


def test_load_knows_its_task(book: str) -> None:
    recur.fit(book, out="r", **FIELDS)
    assert recur.load("r", task="language").perplexity("the word\n") > 1
    with pytest.raises(OptionError, match="r is a run of the task language, not classify"):
        recur.load("r", task="classify")


def test_what_is_no_run_is_refused_in_one_line(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("old").mkdir()
    Path("old/config.toml").write_text('texts = ["book.txt"]\n')
    assert run(["sample", "old"]) == 2
    assert capsys.readouterr().err == "recur: old is not a run: it has no manifest.json\n"


def test_resume_with_more_measures_along_the_way(book: str) -> None:
    recur.fit(book, out="r", **FIELDS)
    before = len(recur.load("r").run.metrics())
    resume("r", epochs=3)
    entries = recur.load("r").run.metrics()
    assert len(entries) >= before + 4, "ten times in a run that was twelve steps, and along what was added"
    steps = [entry["step"] for entry in entries[before:]]
    assert steps == sorted(set(steps))
    assert steps[0] < steps[-1]


def test_a_run_can_be_gone_on_with_from_its_first_moment(book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from recur.tasks.language.task import LanguageTask

    def killed(self: Any, data: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LanguageTask, "baselines", killed)
        with pytest.raises(KeyboardInterrupt):
            recur.fit(book, out="r", **FIELDS)
    assert resume("r").summary["steps"] == 12
    with pytest.raises(RunError, match="already holds a run"):
        recur.fit(book, out="r", **FIELDS)


def test_what_a_constructor_sets_stays() -> None:
    from recur.tasks.language.options import LanguageOptions

    options = LanguageOptions(token="word", hidden_size=64).for_token("word")
    assert (options.hidden_size, options.embedding_size, options.tie_weights) == (64, 256, True)


def test_an_empty_list_of_texts_is_refused() -> None:
    with pytest.raises(OptionError, match="texts is an empty list"):
        recur.fit([])


@pytest.mark.parametrize("budget", [{"minutes": 1e-29}, {"epochs": 1e-29}, {"eval_every": 1e-29, "steps": 2}])
def test_a_budget_of_a_moment_ends(book: str, budget: dict[str, Any]) -> None:
    """The next measurement is found at once, however many would have been due."""
    fields = {**FIELDS, "baseline": False, "steps": None, **budget}
    assert recur.fit(book, **fields).run.metrics()


@pytest.mark.parametrize("texts", [torch.zeros(3), 7, {1, 2}])
def test_data_is_no_name_of_a_file(texts: Any) -> None:
    with pytest.raises(OptionError, match=r"texts must name files or folders, got .*; arrays go into an \.npz"):
        recur.fit(texts, task="grid")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model of each kind of input, after one step."""
    folder = tmp_path_factory.mktemp("models")
    texts = {
        "language": "the network reads a word and the word is kept\n" * 60,
        "conditional": "".join(f"{'ab'[k % 2]}\tsome text {k}\n" for k in range(40)),
        "tag": "".join(f"the\tDT\nw{k}\tNN\n\n" for k in range(40)),
    }
    fields: dict[str, Any] = {"hidden_size": 4, "batch_size": 4, "steps": 1, "threads": 1, "baseline": False}
    found = {}
    for task, text in texts.items():
        (folder / task).write_text(text)
        found[task] = recur.fit(str(folder / task), task=task, out=folder / f"run-{task}", **fields)
    return found


@pytest.mark.parametrize("given", [5, None, b"x", ["a", 5], [None], {"a": 1}, "a" + "\u0301" * 500, 1.5, [b"x"]])
def test_what_is_no_text_is_refused_by_every_model(given: Any, trained: dict[str, Any]) -> None:
    language, labelled, tagger = (trained[task] for task in ("language", "conditional", "tag"))
    calls = [language.generate, language.logprob, language.perplexity, lambda text: labelled.logprob(text, "a")]
    calls += [] if isinstance(given, str) else [tagger]  # to which these are unknown words
    lists = [lambda given: list(tagger.predictions(given)), lambda given: list(tagger.stream(given)), tagger.evaluate]
    for call in (*calls, labelled.generate, *(lists if given is not None else lists[:2])):
        with pytest.raises(RecurError):
            call(given)


@pytest.mark.parametrize("options", [{"seed": 2**70}, {"seed": "x"}, {"samples": "x"}, {"length": "x"}, {"width": "x"},
                                     {"temperature": "hot"}, {"stop": 5}, {"top_k": 10**30}])  # fmt: skip
def test_options_of_use_are_checked(options: dict[str, Any], trained: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))} must"):
        trained["language"].generate("the ", **options)


def test_paths_that_no_system_has(book: str) -> None:
    for path in (5, "a\0b", "\ud800", [], b"x"):
        with pytest.raises(OptionError, match="run must be"):
            recur.load(path)  # type: ignore[call-overload]
        with pytest.raises(OptionError, match="out must be"):
            recur.fit(book, out=path, **FIELDS)
    for name in ("x" * 300, "x/" * 3000):
        with pytest.raises(TextError, match="no file .*its name is too long"):
            recur.fit(name)
