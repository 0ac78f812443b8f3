"""Models of every task as a C header and as a page's JavaScript, asked what `recur predict` is asked: each is trained
and followed once for both."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from recur.export import html
from recur.export.c_header import header
from recur.export.html import example_input, run_model_in_node
from tests.export import runs
from tests.export.c_library import STRICT, library, needs_gcc, run_self_test
from tests.export.conftest import Subject, Visit
from tests.export.node import needs_node

Made: TypeAlias = Callable[[str], Subject]

OPTIONS: dict[str, dict[str, Any]] = {
    "language": {"token": "word", "num_layers": 2, "cell": "lstm", "tie_weights": True, "embedding_size": 8},
    "classify": {"token": "word", "lower": True, "punctuation": True, "direction": "forward", "time_input": True},
    "tag": {"lr": 0.05, "direction": "forward"},
    "tag, output": {"recurrence": "output", "lr": 0.05},
    "seq2seq": {"copy": True, "input_feeding": True, "lr": 0.05},
    "seq2seq, length": {"attention": "none", "stop": "length", "lr": 0.05},
    "forecast": {"base": "seasonal", "bands": "conformal"},
    "forecast, log": {"lags": 12, "segment": 3, "base": "none", "transform": "log", "bands": "conformal"},
    "numbers": {"stack": 2},
    "numbers, CTC": {"task": "tag", "loss": "ctc", "lr": 0.05},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Of each task, made once."""
    kept: dict[str, Subject] = {}

    def make(name: str) -> Subject:
        if name not in kept:
            train = getattr(runs, name.partition(",")[0])
            model = train(tmp_path_factory.mktemp("run"), **OPTIONS.get(name, {}))
            if name == "forecast, log":
                model.model.share.fill_(1.0)  # all of what the network adds
            kept[name] = Subject.of(model, page=name != "tag, output")  # which has none
        return kept[name]

    return make


def compiled(subject: Subject, folder: Path, declared: str, call: str) -> Any:
    """`ask`, a function of C with these arguments, which calls the header."""
    text = header(subject.form, "m", 200).text
    body = f"static m_work work;\nint32_t ask({declared});\nint32_t ask({declared}) {{ return {call}; }}\n"
    return library(folder, {"m": text}, body).ask


# Words ------------------------------------------------------------------------------------------------------------


@needs_node
def test_a_language_model_follows_a_text_that_changes(made: Made) -> None:
    model, _, code = made("language")
    texts = ["the cat", "the cat sat on the old mat", "the dog sat zebra", ""]
    body = """
      const language = new LanguageModel(model, about), follower = new Follower(language);
      return texts.map((text) => {
        for (const token of follower.rewind(language.encode(text))) follower.push(token);
        return [softmax(follower.now.logits), [...follower.surprise], language.continued(follower.ids, [5, 7])];
      });
    """
    found = run_model_in_node(code, body, texts=texts)
    for text, (p, surprise, more) in zip(texts, found, strict=True):
        if "zebra" not in text:  # which Python refuses as a prompt
            assert np.abs(np.array(p) - [*model.probabilities(text).values()]).max() < 1e-6
            assert more == model._continued(text, [5, 7])
        if text:
            own = np.array(surprise, float)  # null: a symbol that no training text had
            np.testing.assert_allclose(own, -model.logprobs(model.vocab.encode(text)), atol=1e-5)


SAID = ["good thing number 3 is fine", "Bad, thing's  POOR! Ärger ΣΑΣ", "zzz", "é", "so so"]


@needs_node
def test_a_classifier_says_what_python_says(made: Made) -> None:
    model, _, code = made("classify")
    found = run_model_in_node(
        code, "const own = new TextClassifier(model, about); return texts.map((x) => own.classify(x));", texts=SAID
    )
    for text, one in zip(SAID, found, strict=True):
        assert np.abs(np.array(one["p"]) - [*model.probabilities(text).values()]).max() < 1e-5, text
        assert one["unknown"] == list(model.run.vocab.unknown_tokens(text))
    assert run_model_in_node(code, "return new TextClassifier(model, about).classify('  ');") is None


@needs_gcc
def test_a_classifier_in_c_says_what_python_says(made: Made, tmp_path: Path) -> None:
    """With its n-grams."""
    subject = made("classify")
    ask = compiled(subject, tmp_path, "const char *text, float *p", "m_predict(&work, text, p)")
    for text in SAID:
        p = (ctypes.c_float * 2)()
        found, expected = ask(text.encode(), p), subject.model.predict(text)
        assert subject.model.classes[found] == expected["output"]
        assert list(p) == pytest.approx(list(expected["probabilities"].values()), abs=1e-6)
    assert ask(b" ", (ctypes.c_float * 2)()) == -1
    run_self_test(tmp_path / "m.h", "gcc", *STRICT, "-x", "c")  # step by step, too


@needs_node
def test_a_tagger_says_what_python_says(made: Made) -> None:
    model, _, code = made("tag")
    texts = ["Anna lives in Rome", "x", "Bob saw Quux-1990 and " + "l" * 40 + "ong words"]
    body = "const own = new WordTagger(model, about); return texts.map((text) => own.tag(text));"
    for text, one in zip(texts, run_model_in_node(code, body, texts=texts), strict=True):
        python = model.predict(text, marginals=True)
        assert [model.tags[k] for k in one["tags"]] == python["tags"]
        expected = [[*row.values()] for row in python["probabilities"]]
        assert np.abs(np.array(one["p"]) - expected).max() < 1e-5


@needs_gcc
@pytest.mark.parametrize("name", ["tag", "tag, output"])
def test_tags_in_c_are_those_of_predict(name: str, made: Made, tmp_path: Path) -> None:
    """With a CRF, characters and casing; each tag behind the one before."""
    subject = made(name)
    ask = compiled(subject, tmp_path, "const char *text, int32_t *tags", "m_predict(&work, text, tags, 50)")
    long = "aWordOfMoreThanThirtyTwoCharactersWhoseMiddleIsLeftOut"
    for line in ("Anna lives in Rome now", f"  1,000.5 x2  ÄÖ Paris ß , 42 {long} iPhone"):
        tags = (ctypes.c_int32 * 50)()
        count = ask(line.encode(), tags)
        assert [subject.model.tags[k] for k in tags[:count]] == subject.model.predict(line)["tags"]
    assert ask(b" ", (ctypes.c_int32 * 50)()) == -1


# Pairs ------------------------------------------------------------------------------------------------------------


@needs_node
@pytest.mark.parametrize("name", ["seq2seq", "seq2seq, length"])
def test_pairs_are_searched_as_in_python(name: str, made: Made) -> None:
    """By an end that is written, with attention and copies; by a length that is drawn first, without."""
    model, _, code = made(name)
    sources = ["abc", "cabba", "zb"]
    body = """
      const own = new PairsModel(model, about);
      return sources.map((text) => [own.write(text), own.write(text, 4, 3)]);
    """
    for text, (greedy, beam) in zip(sources, run_model_in_node(code, body, sources=sources), strict=True):
        first, best = model.predict(text), model.predict(text, beam=4, nbest=3)
        assert greedy["nbest"][0]["output"] == first["output"]
        assert abs(greedy["nbest"][0]["score"] - first["score"]) < 1e-4
        assert greedy["unknown"] == first["unknown"]
        assert [one["output"] for one in beam["nbest"]] == [one["output"] for one in best["nbest"]]
        assert np.abs([a["score"] - b["score"] for a, b in zip(beam["nbest"], best["nbest"], strict=True)]).max() < 1e-4
        if model.model.decoder.attention is not None:
            looked = model.predict(text, attention=True)["attention"]
            assert np.abs(np.array(greedy["nbest"][0]["looked"]) - looked["weights"]).max() < 1e-5
            assert greedy["nbest"][0]["tokens"] == looked["target"]


@needs_gcc
@pytest.mark.parametrize("name", ["seq2seq", "seq2seq, length"])
def test_what_is_written_in_c_is_that_of_predict(name: str, made: Made, tmp_path: Path) -> None:
    """… and the header is clean where an address or a number is wrong."""
    subject = made(name)
    ask = compiled(subject, tmp_path, "const char *source, char *text", "m_predict(&work, source, text, 500, 0.0f, 1)")
    for source in ("abc", "a", "bca"):
        text = ctypes.create_string_buffer(500)
        ask(source.encode(), text)
        assert text.value.decode() == subject.model.predict(source)["output"]
    if name == "seq2seq":  # attention, the most that a header has
        sanitized = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        run_self_test(tmp_path / "m.h", "gcc", *sanitized, "-x", "c")


@needs_node
@needs_gcc
def test_lines_of_a_label_begin_as_in_python(made: Made, tmp_path: Path) -> None:
    subject = made("conditional")
    model, _, code = subject
    line, label = "".join(model.vocab.tokens[4:6]), model.labels[-1]
    body = """
      const own = new ConditionalModel(model, about), follower = new Follower(own, label);
      for (const token of own.encode(line)) follower.push(token);
      return [follower.surprise, greedy(own.writer(label)), own.names];
    """
    surprise, best, names = run_model_in_node(code, body, line=line, label=label)
    likeliest = model.generate(label, width=1)[0]
    assert np.abs(np.array(surprise) + model.logprobs(model.vocab.encode(line), label)[:2]).max() < 1e-5
    assert model.vocab.decode(best["ids"]) == likeliest
    assert names == list(model.labels)
    ask = compiled(subject, tmp_path, "const char *label, char *text", "m_predict(&work, label, text, 500, 0.0f, 1)")
    text = ctypes.create_string_buffer(500)
    assert ask(label.encode(), text) == len(likeliest.encode())
    assert text.value.decode() == likeliest
    assert ask(b"no such label", text) == -1


# Numbers ----------------------------------------------------------------------------------------------------------


@needs_node
def test_a_table_is_forecast_as_in_python(made: Made, tmp_path: Path) -> None:
    model, _, code = made("forecast")
    values = [20 + 3 * np.sin(k) + 0.2 * k for k in range(40)]
    table = "value\n" + "\n".join(f"{value:.3f}" for value in values)
    body = "const own = new SeriesForecaster(model, about); return tables.map((text) => own.forecast(text));"
    gaps = table.replace(f"{values[25]:.3f}", "NA")
    with_gap, (whole,), (spaced,) = run_model_in_node(
        code, body, tables=[gaps, table, " ".join(f"{value:.3f}" for value in values)]
    )
    (tmp_path / "table.csv").write_text(table)
    expected = [[*row["quantiles"].values()] for row in model.predict(tmp_path / "table.csv")]
    assert np.abs(np.array(whole["quantiles"]) / expected - 1).max() < 1e-5
    assert whole["quantiles"] == spaced["quantiles"]
    assert with_gap[0]["past"][25] == pytest.approx(float(f"{values[19]:.3f}"))
    body = """
      const own = new SeriesForecaster(model, about);
      const fault = (text) => { try { own.forecast(text); } catch (error) { return [error.message, error.values]; } };
      return texts.map(fault);
    """
    wrong, short = run_model_in_node(code, body, texts=["1\n2\nx3", "1\n2\n3"])
    assert wrong == ["not_number", {"line": 3, "value": "x3"}]
    assert short == ["too_few", {"count": 3, "least": 7}]


@needs_gcc
def test_a_forecast_in_c(made: Made, tmp_path: Path) -> None:
    subject = made("forecast, log")
    ask = compiled(subject, tmp_path, "const double *x, int32_t n, double *q", "m_predict(&work, x, n, 0, q)")
    values, q = np.array([20 + 3 * np.sin(k) + 0.2 * k for k in range(60)]), (ctypes.c_double * 12)()
    pointer = values.ctypes.data_as(ctypes.c_void_p)
    assert ask(pointer, len(values), q) == 0
    (tmp_path / "table.csv").write_text("value\n" + "\n".join(map(repr, values.tolist())))
    rows = subject.model.predict(tmp_path / "table.csv")
    expected = [value for row in rows for value in row["quantiles"].values()]
    assert list(q) == pytest.approx(expected, rel=1e-5)
    assert ask(pointer, 3, q) == -1  # too few
    values[5] = 0.0
    assert ask(pointer, len(values), q) == -1  # which has no logarithm


@needs_node
@needs_gcc
def test_sequences_of_numbers_are_read(made: Made, tmp_path: Path) -> None:
    """Two steps as one, the last of them repeated."""
    subject, x = made("numbers"), runs.signals(2)[1]
    text = "\n".join(" ".join(f"{v:.6f}" for v in row) for row in x.tolist())
    body = "return model.run('sequence', { x: stacked(readRows(text, 3), about.settings.stack) }).log_p;"
    expected = [*subject.model.probabilities(x).values()]
    assert np.abs(np.exp(run_model_in_node(subject.code, body, text=text)) - expected).max() < 1e-5
    ask = compiled(subject, tmp_path, "const float *x, int32_t n, float *p", "m_predict(&work, x, n, p)")
    p = (ctypes.c_float * 2)()
    assert ask(x.ctypes.data_as(ctypes.c_void_p), len(x), p) == int(np.argmax(expected))
    assert list(p) == pytest.approx(expected, abs=1e-6)
    assert ask(x.ctypes.data_as(ctypes.c_void_p), 2**31 - 1, p) == -1


@needs_gcc
def test_labels_of_numbers_in_c(made: Made, tmp_path: Path) -> None:
    subject = made("numbers, CTC")
    ask = compiled(subject, tmp_path, "const float *x, int32_t n, int32_t *labels", "m_predict(&work, x, n, labels)")
    for x in runs.signals(4):
        labels = (ctypes.c_int32 * 30)()
        count = ask(x.ctypes.data_as(ctypes.c_void_p), len(x), labels)
        assert [subject.model.labels[k] for k in labels[:count]] == subject.model.predict(x)["labels"]


# Pages ------------------------------------------------------------------------------------------------------------


def test_pages_open_in_chromium(browser: Any, made: Made, tmp_path: Path) -> None:
    shown = {
        "classify": ("good thing", "#verdict", "up|down"),
        "tag": ("Anna lives in Rome", "#tagged", "Anna"),
        "seq2seq": ("abc", "#output", "[abc ]*|∅"),
        "forecast": (None, "#charts", "value"),
    }
    for task, (typed, place, expected) in shown.items():
        _, form, code = made(task)
        code.about["example"] = example_input(form)
        (tmp_path / f"{task}.html").write_text(html.page(form, code, quantize=False))
        visit = Visit(browser, tmp_path / f"{task}.html", viewport={"width": 1280, "height": 800})
        if typed is not None:
            visit.page.fill("#text", typed)
        visit.page.locator(place, has_text=re.compile(expected)).wait_for()
        assert visit.page.locator(".unknown:not(:empty)").count() == 0
        visit.close()
