"""The experiments show what the textbook says, in numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import recur
from recur.baselines import ngram
from recur.cells import make_cell
from recur.cli.app import run
from recur.data.text import Corpus, fit_vocab
from recur.diagnostics.labs.parameters import count_text
from recur.diagnostics.labs.truncation import reach
from recur.diagnostics.labs.variance import power_variance, product_variance
from recur.ops import scan
from tests.cli.test_cli import json_of

pytest.importorskip("matplotlib")


def experiment(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, float]:
    path = tmp_path / "figure.svg"
    found = json_of(capsys, "lab", name, *options, "--figure", str(path))
    assert path.read_text().startswith("<?xml")
    assert len(found["paragraph"]) > 200
    numbers: dict[str, float] = found["numbers"]
    return numbers


def test_vanishing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sigmoid, tanh, memory = (found["decay"] for found in experiment("vanishing", tmp_path, capsys).values())  # type: ignore[index]
    assert sigmoid < 0.25 < tanh < 0.8 < 0.97 < memory < 1


def test_exploding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("exploding", tmp_path, capsys)
    gradient: dict[str, float] = found.pop("gradient")  # type: ignore[assignment]
    low, one, high, bounded = found.values()
    assert (low, one, high) == pytest.approx((0.9**60, 1.0, 1.1**60))
    assert bounded < 32**0.5
    assert list(gradient.values())[:3] == pytest.approx([0.9**60, 1.0, 1.1**60])
    assert gradient["tanh, |λ| = 1.1"] < 1.1**60 / 100


def test_truncation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("truncation", tmp_path, capsys)
    accuracy: dict[str, float] = found["accuracy"]  # type: ignore[assignment]
    assert all(0.4 < accuracy[mode] < 0.6 for mode in ("truncated:3", "truncated:5", "sliding:5")), "chance"
    assert all(accuracy[mode] > 0.95 for mode in ("truncated:20", "full"))
    gradient: dict[str, dict[str, float]] = found["gradient"]  # type: ignore[assignment]
    full, cut, slid, drawn = (gradient[m] for m in ("full", "truncated:5", "sliding:5", "randomized:0.8"))
    assert full["bias"] == 0
    assert 0.2 < slid["bias"] < cut["bias"] < 0.8, "sliding reaches further back"
    assert drawn["bias"] < 3 * drawn["noise"], "unbiased"
    assert drawn["spread"] > 0.1 > cut["spread"] == slid["spread"] == 0
    assert [each["rows"] for each in gradient.values()] == [1, 1, 5, 1]
    assert [each["reach"] for each in gradient.values()][:3] == [20.5, 3.0, 4.75]


@pytest.mark.parametrize("mode", ["full", "truncated:3", "sliding:3"])
def test_how_far_a_loss_reaches_back(mode: str) -> None:
    """h_t = h_{t−1} + x_t: the gradient with respect to x_k is the number of losses that reach it."""
    weights = {"weight_ih": torch.ones(1, 1), "weight_hh": torch.ones(1, 1)}
    x = torch.ones(1, 7, 1, requires_grad=True)
    scan(make_cell("elman-relu"), weights, x, bptt=mode).outputs.sum().backward()
    assert x.grad is not None
    assert float(x.grad.sum()) == pytest.approx(7 * reach(mode, 7))


def test_forget_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decays = [found["decay"] for found in experiment("forget-gate", tmp_path, capsys).values()]  # type: ignore[index]
    assert decays == sorted(decays)
    assert decays[0] < 0.3
    assert 0.98 < decays[-1] < 1


def test_clipping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("clipping", tmp_path, capsys)
    free, bound = found["no clipping"], found["θ = 0.5"]
    assert free["last_loss"] > np.log(2) > 0.1 > bound["last_loss"], "it learns with clipping alone"  # type: ignore[index]
    assert free["norm"] > 10 * bound["norm"] * found["clipped"]  # type: ignore[index]
    assert 0 < found["clipped"] < 0.5


@pytest.mark.parametrize("v", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("n", range(1, 9))
def test_the_variances_of_products_are_those_of_gaussian_quadrature(n: int, v: float) -> None:
    points, weights = np.polynomial.hermite_e.hermegauss(40)  # exact for polynomials of these degrees
    weights = weights / weights.sum()

    def mean(power: int) -> float:
        return float(weights @ (np.sqrt(v) * points) ** power)

    assert product_variance(n, v) == pytest.approx(mean(2) ** n, rel=1e-10)
    assert power_variance(n, v) == pytest.approx(mean(2 * n) - mean(n) ** 2, rel=1e-10)


def test_variance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured, within four standard errors of the closed form; one matrix scatters over far more than one for each."""
    found = experiment("variance", tmp_path, capsys, "--steps", "40", "--target", "0.5")
    assert found["v"] == pytest.approx(0.5 ** (1 / 40))
    for row in found["single"]:  # type: ignore[attr-defined]
        n = row["steps"]
        assert row["own_theory"] == pytest.approx(0.5)
        assert row["own"] == pytest.approx(0.5, rel=4 * (3**n / 400_000) ** 0.5)
        assert row["shared"] == pytest.approx(row["shared_theory"], rel=0.4)
    own, shared = found["matrices"]["own"], found["matrices"]["shared"]  # type: ignore[index]
    error = ((1 + 2 / 64) ** 40 / 400) ** 0.5  # E‖h‖⁴ / (E‖h‖²)² is (1 + 2/H)ⁿ
    assert own["measured"] == pytest.approx(0.5, rel=4 * error)
    assert own["theory"] == pytest.approx(0.5)
    assert shared["to"] / shared["from"] > 30 * own["to"] / own["from"]


def test_the_number_of_parameters_by_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--k", "50", "--tau", "5", "--cell", "lstm", "--hidden-size", "7", "--num-layers", "2")
    found = experiment("parameters", tmp_path, capsys, *options)
    assert found["table"] == [50, 2_500, 125_000, 6_250_000, 312_500_000]
    K, E, H = 54, 64, 7
    layers = 4 * H * (E + H + 2) + 4 * H * (H + H + 2)
    assert found["network_parameters"] == K * E + layers + H * K + K == 6_380
    assert found["network_smaller_than_table_from"] == 3
    assert experiment("parameters", tmp_path, capsys, "--k", "1")["network_smaller_than_table_from"] is None


def test_the_number_of_parameters_of_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the cat sat on the mat\nthe dog sat on the cat\n" * 3
    book = tmp_path / "book.txt"
    book.write_text(text)
    for token in ("char", "word"):
        vocab = fit_vocab(Corpus.of(str(book)), token)
        counted = count_text(Corpus.of(str(book)), vocab, 3)
        for n in (1, 2, 3):
            assert sum(counted.ngrams[:n]) == len(ngram.fit(text, vocab, n)), "as many as a model of that order has"
        found = experiment(
            "parameters", tmp_path, capsys, str(book), "--token", token, "--tau", "3", "--hidden-size", "8"
        )
        assert found["ngrams"] == counted.ngrams
        assert found["ngram_parameters"][2] == 2 * sum(counted.ngrams) - counted.ngrams[2]  # type: ignore[index]
    pairs = {text[k : k + 2] for k in range(len(text) - 1)}
    assert count_text(Corpus.of(str(book)), fit_vocab(Corpus.of(str(book))), 2).ngrams[1] == len(pairs)


def test_the_place_where_a_network_becomes_smaller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("pydoc", "--hidden-size", "4", "--tau", "4")
    found = experiment("parameters", tmp_path, capsys, *small)
    sizes, size = found["ngram_parameters"], found["network_parameters"]
    first = found["network_smaller_than_ngrams_from"]
    assert sizes[int(first) - 2] <= size < sizes[int(first) - 1]  # type: ignore[index]


def test_the_parameters_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat\n" * 40)
    model = recur.fit(book, task="language", out=tmp_path / "run", hidden_size=8, steps=1, threads=1, baseline=False)
    found = experiment("parameters", tmp_path, capsys, "--run", str(tmp_path / "run"), "--tau", "2")
    assert found["network_parameters"] == sum(p.numel() for p in model.model.parameters())
    assert run(["lab", "parameters", "--run", str(tmp_path / "run"), "--hidden-size", "9"]) == 2
    assert run(["lab", "parameters", "--k", "9", str(book)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_what_cannot_be_drawn_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "exploding", "--figure", "figure.xyz"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["lab", "nothing"]) == 2
