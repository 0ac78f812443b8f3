"""Models in JavaScript, run by node: graphs, cells, tokenisers and searches beside Python's."""

from __future__ import annotations

import base64
import io
import random
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recur.baselines.classifiers import ngrams_of
from recur.cells import make_cell
from recur.data.csv_files import parse_date
from recur.data.series.dates import calendar_features, calendar_names, infer_frequency
from recur.data.text import Characters, Subwords, Vocab, Words, fit_lines
from recur.data.text.corpus import normalised
from recur.data.text.tokenizers import Lines, Spaced, casing_of, without_leading_marks
from recur.decoding import SamplingOptions
from recur.errors import OptionError
from recur.export.graphs import Graph, PortableModel, TensorSpec, capture, prepare_model
from recur.export.html import ENGINE_SCRIPTS, read_source
from recur.export.javascript import wasm_module
from recur.export.tokenizers import describe_vocabulary
from recur.nn import Recurrent
from tests.export import runs
from tests.export.node import difference, needs_node, run_in_node
from tests.support import TOLERANCE

pytestmark = needs_node
ROUNDING = TOLERANCE[torch.float32]
Made = Callable[[str], tuple[Any, PortableModel]]


def engine() -> str:
    return "\n".join(read_source(name) for name in ENGINE_SCRIPTS)


# Graphs -----------------------------------------------------------------------------------------------------------


class Outputs(nn.Module):
    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs, state, _ = self.network(x)
        return outputs, *(part for layer in state for part in layer)


def layer(name: str, H: int, D: int) -> Graph:
    """A recurrent layer alone, with weights that make gates move."""
    torch.manual_seed(0)
    network = Recurrent(make_cell(name), D, H)
    for weight in network.parameters():
        nn.init.uniform_(weight, -0.7, 0.7)
    network = prepare_model(network)
    outputs, state, _ = network(torch.zeros(1, 2, D))
    found = [TensorSpec("outputs", ("B", "T", outputs.shape[2]))]
    found += [TensorSpec(f"s{k}", ("B", part.shape[1])) for k, part in enumerate(p for one in state for p in one)]
    return capture(name.replace("-", "_"), Outputs(network), [TensorSpec("x", ("B", "T", D))], found)


def of_numbers(*graphs: Graph) -> PortableModel:
    settings = {"reads": "numbers", "features": 1, "stack": 1}
    return PortableModel("layers", "numbers", "layers", {graph.name: graph for graph in graphs}, settings=settings)


def test_weights_of_8_bits_are_those_of_python() -> None:
    made = [layer(name, 32, 17) for name in ("gru", "peephole", "slstm")]
    assert difference(of_numbers(*made), quantize=True) < ROUNDING


def test_the_kernel_multiplies_matrices_of_all_sizes() -> None:
    sizes = [(1, 1, 1), (1, 3, 5), (2, 4, 4), (3, 9, 17), (1, 13, 32), (5, 7, 3), (2, 8, 0), (0, 3, 3)]
    body = """
      startKernel(kernelModule); free = 1 << 20; settle();
      const f = F, fast = kernel; let worst = 0;
      for (const [M, N, K] of sizes) {
        for (let k = 0; k < 4000; k++) f[k] = Math.sin(k * k);
        const y = f.slice(2000, 2100);
        for (const [own, at] of [[fast, 2000], [plainProduct, 2100]]) {
          f.set(y, at); own(0, 4 * 1000, 4 * at, M, N, K, 4 * (K + 3), 4 * (K + 1), 4 * (N + 2));
        }
        for (let k = 0; k < 100; k++) {
          const m = Math.floor(k / (N + 2)), n = k % (N + 2); let sum = y[k];
          if (m < M && n < N) for (let j = 0; j < K; j++) sum += f[m * (K + 3) + j] * f[1000 + n * (K + 1) + j];
          worst = Math.max(worst, Math.abs(f[2000 + k] - sum), Math.abs(f[2100 + k] - sum));
        }
      }
      return [worst, fast === plainProduct];
    """
    worst, plain = run_in_node(
        engine() + "\nconst makeGraphs = null;",
        body,
        kernelModule=base64.b64encode(wasm_module()).decode(),
        sizes=sizes,
    )
    assert worst < 1e-5
    assert not plain
    without = run_in_node(engine(), "startKernel('AAAA'); return kernel === plainProduct;")
    assert without, "where WebAssembly is refused, JavaScript multiplies"


def test_functions_that_javascript_does_not_have() -> None:
    x = [-7.0, -2.6, -2.5, -1.0, -0.1, 0.0, 1e-3, 0.7, 2.4999, 3.0, 5.9, 6.1]
    found = run_in_node(engine(), "return [x.map(erf), x.map(sigmoid)];", x=x)
    t = torch.tensor(x, dtype=torch.float64)
    assert np.abs(np.array(found[0]) - t.erf().numpy()).max() < 1e-11
    assert np.abs(np.array(found[1]) - t.sigmoid().numpy()).max() < 1e-15


# Tokens -----------------------------------------------------------------------------------------------------------

POOLS = (
    "abc de'f-g ABCÄÖ ßΣσς \n\t\x1c\x85\u3000", "中文字,。アあ한글가", "<unk><pad><eos><bos> <",
    "e\u0301a\u0308\u0e49\u0e33हिन्दी\u200c\u200d👩\u200d👩\u200d👧🇩🇪\ufe0f\U000e0101", "0123²③½Ⅷ٣൧",
    "_-'’`\"(){}\u2581\ufeff\u2028\r",
)  # fmt: skip
CHUNKS = (" the ", " network", "Ing", "\n", "don't", "co-op", "中文", "")


def fuzzed(count: int) -> list[str]:
    draw = random.Random(0)
    known = [
        c for c in map(chr, [*range(1, 0xD800), *range(0xE000, 0x20000)]) if unicodedata.category(c) not in ("Cn", "Co")
    ]
    kinds = (lambda: draw.choice(known), lambda: draw.choice(draw.choice(POOLS)), lambda: draw.choice(CHUNKS))
    return ["".join(draw.choices(kinds, (2, 5, 3))[0]() for _ in range(draw.randrange(40))) for _ in range(count)]


def test_texts_are_cut_as_python_cuts_them() -> None:
    lines = (Path(__file__).parent.parent.parent / "README.md").read_text().split("\n")
    texts = fuzzed(400) + lines[:40]
    vocabs = {
        "char": fit_lines(lines[:60]),
        "word": fit_lines(lines, "word"),
        "marks": fit_lines(lines, "word", punctuation=True, lower=True),
        "space": Vocab.from_counts(Spaced().count(lines), Spaced()),
        "line": Vocab.from_counts(Lines().count(lines), Lines()),
    }
    for kind in ("unigram", "bpe"):
        vocabs[kind] = Vocab.of_pieces(Subwords.train([*lines, *["中文字符"] * 20], 400, kind), Counter())
    body = """
      const made = Object.fromEntries(Object.entries(tables).map(([name, table]) => {
        const vocab = new Vocab(table);
        return [name, texts.map((text) => [vocab.encode(text), vocab.decode(vocab.encode(text)), vocab.unknown(text)])];
      }));
      const each = (work) => texts.map((text) => work(text));
      return { ...made, casing: each((text) => splitSpaces(text).map(casingOf)), marks_away: each(withoutLeadingMarks),
        normal: each(normalised), words: each((text) => grams(text, "word")),
        letters: each((text) => grams(text, "char")) };
    """
    found = run_in_node(
        engine(), body, tables={name: describe_vocabulary(v).to_json() for name, v in vocabs.items()}, texts=texts
    )
    for name, vocab in vocabs.items():
        for text, made in zip(texts, found[name], strict=True):
            ids = vocab.encode(text).tolist()
            assert made == [ids, vocab.decode(ids), list(vocab.unknown_tokens(text))], (name, text)
    assert found["casing"] == [[casing_of(word) for word in text.split()] for text in texts]
    assert found["marks_away"] == [*map(without_leading_marks, texts)]
    assert found["normal"] == [*map(normalised, texts)]
    assert found["words"] == [ngrams_of(text, "word") for text in texts]
    assert found["letters"] == [ngrams_of(text, "char") for text in texts]
    assert isinstance(vocabs["marks"].tokenizer, Words)
    assert isinstance(vocabs["char"].tokenizer, Characters)


def test_subwords_of_other_rules_are_refused() -> None:
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(runs.TEXTS), model_writer=written, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    with pytest.raises(OptionError, match="without text normalization"):
        describe_vocabulary(Vocab(("a",), (1,), Subwords(written.getvalue())))


# Drivers ----------------------------------------------------------------------------------------------------------


def test_the_next_token_is_drawn_as_in_python() -> None:
    draw = np.random.default_rng(0)
    options = [
        {},
        {"temperature": 0.7},
        {"temperature": 1.3, "top_p": 0.8},
        {"top_k": 3},
        {"min_p": 0.2, "top_p": 0.95},
        {"top_k": 30, "top_p": 0.01},
    ]
    logits = draw.normal(0, 3, (20, 30)).round(1).tolist()
    names = {"temperature": "temperature", "top_p": "topP", "top_k": "topK", "min_p": "minP"}
    body = "return options.map((one) => logits.map((row) => new Choice(one).probabilities(row)));"
    found = run_in_node(
        engine(), body, logits=logits, options=[{names[k]: v for k, v in one.items()} for one in options]
    )
    for one, rows in zip(options, found, strict=True):
        assert (
            np.abs(
                np.array(rows) - SamplingOptions(**one).probabilities(torch.tensor(logits, dtype=torch.float64)).numpy()
            ).max()
            < 1e-12
        ), one
    body = """
      const random = makeRandom(seed), counts = [0, 0, 0];
      for (let k = 0; k < 30000; k++) counts[new Choice().draw([0, Math.log(2), Math.log(3)], random)]++;
      return counts;
    """
    counts = np.array(run_in_node(engine(), body, seed=7))
    assert np.abs(counts / 5000 - [1, 2, 3]).max() < 0.1
    assert counts.tolist() == run_in_node(engine(), body, seed=7)
    assert counts.tolist() != run_in_node(engine(), body, seed=8)


# Series -----------------------------------------------------------------------------------------------------------


def test_dates_come_as_often_as_in_python() -> None:
    columns = [
        ["1949-01", "1949-02", "1949-05"],
        ["1990", "1992", "1996"],
        ["2001Q1", "2001Q2", "2002-Q1"],
        ["2020-01-31", "2020-02-29", "2020-03-31"],
        ["2020-01-15", "2020-02-15", "2020-06-15"],
        ["2021-03-01", "2021-03-02", "2021-03-03", "2021-03-04", "2021-03-05", "2021-03-08"],
        ["2021-02-27", "2021-02-28", "2021-03-03"],
        ["2016-07-01 00:00:00", "2016-07-01 01:00:00", "2016-07-01 03:00:00"],
        ["1999/12/31 23:45", "2000/1/1 0:00"],
        ["19991231", "20000102"],
    ]
    body = """
      return columns.map((column) => {
        const dates = column.map(parseDate), places = dates.map((date) => date.place);
        const own = Frequency.of(places, dates[0].form);
        const ahead = own.places(places[0], 30), dated = dates[0].form !== "number";
        return [own.unit, own.count, own.step(places[0]), own.steps(places), ahead.map((place) => own.written(place)),
          dated ? Object.keys(CYCLES).map((name) => calendarColumn(`calendar, ${name} sin`, ahead)) : []];
      });
    """
    for column, (unit, count, step, steps, ahead, cycles) in zip(
        columns, run_in_node(engine(), body, columns=columns), strict=True
    ):
        dates = [parse_date(one) for one in column]
        places = np.array([date.place for date in dates if date is not None])
        assert dates[0] is not None
        own = infer_frequency([places], dates[0].form)
        assert (unit, count, step) == (own.unit, own.count, own.step(int(places[0]))), column
        assert steps == own.steps(places).tolist()
        later = own.places(int(places[0]), 30)
        assert ahead == [own.written(int(place)) for place in later]
        names, features = calendar_names(own, "circle"), calendar_features(later, own, "circle")
        order = [
            "second of minute",
            "minute of hour",
            "hour of day",
            "day of week",
            "day of month",
            "week of year",
            "month",
        ]
        for k, name in enumerate(names):
            if name.endswith(" sin"):
                assert np.abs(np.array(cycles[order.index(name[:-4])]) - features[:, k]).max() < 1e-9, (column, name)
    refused = ["1949-13", "2021-02-30", "hello", "12:30", "2020-01-01 25:00"]
    assert run_in_node(engine(), "return dates.map(parseDate);", dates=refused) == [None] * len(refused)


def test_the_likeliest_path_is_read_without_blanks() -> None:
    scores = [9, 0, 0, 9, 0, 0, 0, 0, 9, 9, 0, 0, 0, 9, 0]
    assert run_in_node(engine(), "return bestPath(Float32Array.from(scores), 3, 2);", scores=scores) == [0, 0, 1]
