"""The portable form: graphs that give what the model gives, at sizes that they were not followed with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import recur
from recur.errors import OptionError
from recur.export import to_portable
from recur.export.graphs import prepare_model
from recur.nn import Recurrent
from recur.tasks import open_predictor
from tests.export import runs
from tests.support import close


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> object:
    """With all that a language model can have beside its layers, and those of two widths."""
    options = {"time_input": True, "initial": "learned", "top_hidden_size": 4, "softmax": "adaptive"}
    return runs.language(tmp_path_factory.mktemp("language"), num_layers=2, cell="lstm", **options)


def test_a_sequence_is_its_steps_and_the_model(language: runs.Predictor) -> None:  # type: ignore[type-arg]
    found = to_portable(language)
    step, sequence = found.graphs["step"], found.graphs["sequence"]
    assert step.carried == ("h_0", "c_0", "h_1", "c_1", "t")
    tokens = torch.randint(4, len(found.vocabs["vocab"]), (3, 11))
    begin = [found.start[name].expand(3, *found.start[name].shape) for name in step.carried]
    logits, *after = sequence(tokens, *begin)
    with torch.no_grad():
        expected = language.model(tokens)
    close(logits, expected.logits)
    state = begin
    for t in range(11):
        one, *state = step(tokens[:, t], *state)
        close(one, logits[:, t])
    for ours, theirs in zip(state, after, strict=True):
        assert torch.allclose(ours.double(), theirs.double(), atol=1e-6)


def test_a_forecast_is_that_of_predict(tmp_path: Path) -> None:
    model = runs.forecast(tmp_path, lags=0, base="linear", bands="rolling")
    model.model.share.fill_(1.0)  # all of what the network adds
    graph = to_portable(model).graphs["forecast"]
    table = tmp_path / "table.csv"
    values = torch.tensor([float(row) for row in table.read_text().split()[1:]], dtype=torch.float64)
    (quantiles,) = graph(values.view(1, -1, 1), torch.zeros(1, dtype=torch.int64))
    expected = torch.tensor([list(row["quantiles"].values()) for row in model.predict(table)], dtype=torch.float64)
    close(quantiles[0, :, 0], expected, tolerance=1e-6)


def test_a_forecast_reads_what_is_known_beside(tmp_path: Path) -> None:
    """Prices that are known ahead, visits until now, the season's phase and the time."""
    value = [20 + 5 * math.sin(k * math.pi / 3) + 0.1 * k + k * k % 7 / 5 for k in range(90)]
    price, visits = [3 + math.cos(k / 4) for k in range(94)], [100 + k % 11 for k in range(90)]
    lines = [f"{value[k]:.6f},{price[k]:.6f},{visits[k]}" if k < 90 else f",{price[k]:.6f}," for k in range(94)]
    (tmp_path / "table.csv").write_text("\n".join(["value,price,visits", *lines]) + "\n")
    given = {"target": ("value",), "covariates": ("price",), "past_covariates": ("visits",), "time_input": True}
    shape = {"scale": "changes", "base": "none", "transform": "none", "horizon": 4, "season": 6}
    model = recur.fit(tmp_path / "table.csv", task="forecast", **given, **shape, **runs.SMALL)
    model.model.share.fill_(1.0)
    graph = to_portable(model).graphs["forecast"]
    columns = {"values": value, "covariates": price, "past": visits}
    inputs = [
        torch.tensor([float(f"{x:.6f}") for x in columns[v.name]], dtype=torch.float64).view(1, -1, 1)
        if v.name in columns
        else torch.zeros(1, dtype=torch.int64)
        for v in graph.inputs
    ]
    assert [v.name for v in graph.inputs] == ["values", "start", "covariates", "past"]
    (quantiles,) = graph(*inputs)
    expected = [list(row["quantiles"].values()) for row in model.predict(tmp_path / "table.csv")]
    close(quantiles[0, :, 0], torch.tensor(expected, dtype=torch.float64), tolerance=1e-5)


def test_what_has_no_graph_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"lnlstm cannot be exported: .*pointwise = False"):
        prepare_model(Recurrent("lnlstm", 2, 3))
    drawn, counted = runs.forecast(tmp_path, strategy="iterated"), runs.forecast(tmp_path)
    with pytest.raises(OptionError, match="strategy iterated"):
        to_portable(drawn)
    monkeypatch.setattr("recur.export.forecasters.NegativeBinomial", type(counted.model.distribution))
    with pytest.raises(OptionError, match="--distribution negative-binomial has no graph"):
        to_portable(counted)
    run = runs.classify(tmp_path, baseline=False)
    both = open_predictor([run.run.path, run.run.path], "cpu")
    with pytest.raises(OptionError, match="export them one by one"):
        to_portable(both)
