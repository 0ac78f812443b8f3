"""One input, one output: a column from the others of its row, beside least squares and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

import recur
from recur.cli.app import run
from recur.errors import OptionError, TextError
from recur.models import RowModel
from recur.tasks import make_options, task_class
from recur.tasks.table.data import Inputs, find_inputs, is_class, parse_rows, vectors
from recur.tasks.table.task import RowBatch, linear_model
from tests.cli.test_cli import json_of
from tests.support import close
from tests.training import begin, reopen, stop_after

SMALL: dict[str, Any] = {"hidden": 16, "batch": 32, "threads": 1, "measure": 0.5, "rate": 0.02, "weight_decay": 0.0}


def write(here: Path, n: int = 400) -> None:
    """y is a · b, or turned round where the colour is blue; kind is its sign. No linear model can know."""
    draw = np.random.default_rng(0)
    rows = ["a,b,colour,note,y,kind"]
    for k in range(n):
        (a, b), blue = draw.normal(size=2), draw.integers(2)
        y = (a + 1) * (b - 1) * (-1 if blue else 1)
        rows.append(f"{a:.4f},{b:.4f},{('red', 'blue')[blue]},id{k},{y:.4f},{'up' if y > 0 else 'down'}")
    numbers = [row.rpartition(",")[0] for row in rows]
    (here / "numbers.csv").write_text("\n".join(numbers) + "\n")
    classes = [",".join([*row.split(",")[:4], row.split(",")[5]]) for row in rows]
    (here / "classes.csv").write_text("\n".join(classes) + "\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_a_recurrent_network_of_one_step() -> None:
    """The same numbers as an Elman network whose state before is zero: W has nothing to act on."""
    options: Any = make_options("table", {"hidden": 5})
    model, x = RowModel(3, 2, options), torch.randn(4, 3)
    elman = torch.nn.RNN(3, 5, batch_first=True)
    with torch.no_grad():
        elman.weight_ih_l0.copy_(model.network.hidden.weight)
        elman.bias_ih_l0.copy_(model.network.hidden.bias)
        elman.bias_hh_l0.zero_()
        close(model(x), model.output(elman(x[:, None])[0][:, 0]))


def test_columns_become_inputs() -> None:
    lines = ["n,w,id,t", "1,red,q1,a", "3,blue,q2,b", ",red,q3,a", "5,green,q4,b", "3,green,q5,a", "3,blue,q6,b"]
    rows = parse_rows(lines, "it")
    inputs = Inputs.of(find_inputs(rows, "t"))
    assert inputs == (("n",), ("w=blue", "w=green", "w=red"))
    found = vectors(rows, inputs, [3.0], [2.0])
    assert found[0].tolist() == [-1, 0, 0, 1]
    assert found[2].tolist() == [0, 0, 0, 1], "the mean where a number is missing"
    assert is_class(rows, "t")
    assert not is_class(parse_rows(["a,t", *(f"0,{k / 2}" for k in range(5))], "it"), "t")
    assert is_class(parse_rows(["a,t", *(f"0,{k % 3}" for k in range(9))], "it"), "t")
    assert not is_class(parse_rows(["a,t", *(f"0,{k}" for k in range(30))], "it"), "t")


def test_the_linear_model_is_what_others_find() -> None:
    torch.manual_seed(0)
    x, other = torch.randn(90, 4), torch.randn(20, 4)
    y = x @ torch.tensor([1.0, -2, 0, 3]) + 0.3 * torch.randn(90) + 5
    ones = np.c_[x.numpy(), np.ones(90)]
    w = np.linalg.lstsq(ones, y.numpy(), rcond=None)[0]
    expected = torch.from_numpy(np.c_[other.numpy(), np.ones(20)] @ w)
    close(linear_model(RowBatch(x, y), other, 1, False)[:, 0], expected.float())
    classes = torch.bucketize(y, torch.tensor([3.0, 7.0]))
    theirs = LogisticRegression(C=1 / (1e-3 * 90), max_iter=10000, tol=1e-8).fit(x.numpy(), classes.numpy())
    found = linear_model(RowBatch(x, classes), other, 3, True).argmax(-1)
    assert (found.numpy() == theirs.predict(other.numpy())).mean() >= 0.95


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_run_goes_on_exactly_and_beats_the_linear_model(kind: str, here: Path) -> None:
    fields = {"texts": f"{kind}.csv", "layers": 2, "dropout_output": 0.05, "steps": 300, **SMALL}
    straight = begin(here / "a", "table", **fields)
    straight.train()
    stop_after(begin(here / "b", "table", **fields), 120)
    torch.manual_seed(99)
    resumed = reopen(here / "b")
    resumed.train()
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    found = recur.load(here / "a", task="table").evaluate()
    same, linear = found["beside"]
    if kind == "numbers":
        assert found["r2"] > 0.8 > 0.5 > linear["r2"] > same["r2"]
        assert found["rmse"] < linear["rmse"]
    else:
        assert found["accuracy"] > 0.89 > linear["accuracy"] >= same["accuracy"]


def test_at_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "classes.csv"]) == 2
    assert "--task table tells one column from the others of its row" in capsys.readouterr().err
    quick = ["--task", "table", "--hidden", "4", "--threads", "1", "--steps", "3", "-q"]
    for kind in ("numbers", "classes"):
        assert run(["train", f"{kind}.csv", *quick, "--out", kind]) == 0
        assert run(["resume", kind, "--steps", "2", "-q"]) == 0
        assert run(["eval", kind]) == 0
        capsys.readouterr()
    assert {"r2", "rmse"} <= set(json_of(capsys, "eval", "numbers"))
    (here / "new.csv").write_text("colour,b,a\nred,1,2\ngreen,,0\n")
    for kind in ("numbers", "classes"):
        predicted = json_of(capsys, "predict", kind, "new.csv")["predictions"]
        assert [row["input"] for row in predicted] == ["red,1,2", "green,,0"]
    assert set(predicted[0]["probabilities"]) == {"down", "up"}
    assert [row.get("unknown") for row in predicted] == [None, ["colour=green"]]
    assert run(["predict", "classes", "new.csv"]) == 0
    assert "never seen in training, and in how many inputs: 'colour=green' (1)" in capsys.readouterr().err
    for text, says in (("b,a\n1,2\n", "has no column 'colour'"), ("colour,b\nred,1\n", "has no column 'a'")):
        (here / "new.csv").write_text(text)
        assert run(["predict", "classes", "new.csv"]) == 2
        assert f"recur: new.csv:2 {says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fields", "says"),
    [
        ("a,b\n1\n", {}, "table.csv:2: 1 columns, where the header has 2"),
        ("a,a\n1,2\n", {}, "a column's name stands there twice"),
        ("a,b\n", {}, "a table has a line that names its columns, and rows below it"),
        ("a\n1\n" * 1 + "2\n" * 60, {}, "one column alone has no other to be told from"),
        ("a,b\n" + "1,2\n" * 60, {"target": "c"}, "unknown column 'c'"),
        ("a,b\n" + "1,2\n" * 60 + "1,\n" * 60, {}, "has no b, which is what is to be told"),
        ("a,b\n" + "".join(f"w{k},2\n" for k in range(60)), {}, "no column beside b has numbers, or words that repeat"),
        ("a,b\n" + "1,inf\n" * 60, {}, "b is 'inf', which is no number up to"),
        ("a=b,c\n" + "x,2\n" * 60, {}, "rename it without ="),
        ("a,b\n1,2\n\n\n1\n", {}, "table.csv:5: 1 columns"),
        ("a,b\n" + "1,2\n" * 60, {"texts": "table.csv"}, None),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    text: str, fields: dict[str, Any], says: str | None, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text(text)
    options = make_options("table", {**fields, "texts": str(tmp_path / "table.csv")})
    if says is None:
        assert task_class("table").settle(options).target == "b"
        return
    with pytest.raises(TextError) as error:
        task_class("table").settle(options)
    assert says in str(error.value)


def test_numbers_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="a number for each column, deviations above 0"):
        make_options("table", {"column_mean": [1.0], "column_deviation": [0.0]})
