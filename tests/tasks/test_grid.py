"""Images read in two dimensions: the network beside its definition, runs that go on exactly, what can be learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

import recur
from recur.cli.app import run
from recur.errors import OptionError, TextError
from recur.models import GridClassifier
from recur.models.classifiers import image_patches
from recur.nn import Grid
from recur.tasks import make_options, task_class
from recur.tasks.grid.task import ImageExample, nearest_mean, pixels_of, shifted, softmax_of_pixels
from recur.training import Trainer
from tests.cli.test_cli import json_of
from tests.small_runs import begin, reopen, stop_after
from tests.support import close

SMALL: dict[str, Any] = {"hidden_size": 6, "batch_size": 16, "threads": 1, "eval_every": 0.5}


def crosses(n: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two bars of three pixels in 6 × 6: side by side, or one below the other. Each pixel by itself tells nothing."""
    draw = np.random.default_rng(seed)
    images, labels = np.zeros((n, 6, 6), np.uint8), draw.integers(0, 2, n)
    for image, label in zip(images, labels, strict=True):
        r, c = draw.integers(0, 4, 2)
        if label:
            image[r : r + 3, c] = image[r : r + 3, c + 2] = 250
        else:
            image[r, c : c + 3] = image[r + 2, c : c + 3] = 250
    return images, labels


@pytest.fixture
def bars(tmp_path: Path) -> str:
    images, labels = crosses(400)
    np.savez(tmp_path / "bars.npz", images=images, kind=np.array(["rows", "columns"])[labels])
    return str(tmp_path / "bars.npz")


def options_of(**fields: Any) -> Any:
    return make_options("grid", {"pixel_mean": [0.0], "pixel_deviation": [1.0], "hidden_size": 3, "patch": 1, **fields})


@pytest.mark.parametrize("pool", ["mean", "max", "last"])
@pytest.mark.parametrize("corners", [1, 2, 4])
def test_it_is_the_grid_read_point_by_point_pooled(corners: int, pool: str) -> None:
    model = GridClassifier(2, 4, options_of(corners=corners, pool=pool, num_layers=2)).double().eval()
    x = torch.randn(3, 4, 5, 2, dtype=torch.float64)
    with torch.no_grad():
        h = x
        for grid in model.grids:
            assert isinstance(grid, Grid)
            h = grid.plain(h)
        if pool == "last":  # the point across from where each corner's reading begins
            ends = {(0, 0): h[:, 3, 4], (0, 1): h[:, 3, 0], (1, 0): h[:, 0, 4], (1, 1): h[:, 0, 0]}
            begun = {1: [(0, 0)], 2: [(0, 0), (1, 1)], 4: [(0, 0), (0, 1), (1, 0), (1, 1)]}[corners]
            pooled = torch.cat([ends[at][:, 3 * q : 3 * q + 3] for q, at in enumerate(begun)], dim=1)
        else:
            pooled = h.mean((1, 2)) if pool == "mean" else h.amax((1, 2))
        close(model(x), pooled @ model.output.weight.T + model.output.bias)


def test_patches_hold_their_pixels() -> None:
    x = torch.randn(2, 5, 4, 3)
    found = image_patches(x, 2)
    assert found.shape == (2, 3, 2, 12)
    close(found[:, 1, 1], x[:, 2:4, 2:4].flatten(1))
    close(found[:, 2, 0], torch.cat([x[:, 4:, 0:2], torch.zeros(2, 1, 2, 3)], 1).flatten(1))


def test_shifted_images_are_moved_whole() -> None:
    x = torch.randn(50, 4, 5, 2)
    found, moves = shifted(x, 1), set()
    for one, image in zip(found, x, strict=True):
        padded = torch.nn.functional.pad(image, (0, 0, 1, 1, 1, 1))
        at = [(r, c) for r in range(3) for c in range(3) if torch.equal(padded[r : r + 4, c : c + 5], one)]
        assert len(at) == 1
        moves.add(at[0])
    assert len(moves) == 9


def make(path: Path, bars: str, **more: Any) -> Trainer:
    return begin(path, "grid", texts=bars, **{**SMALL, **more})


@pytest.mark.parametrize(
    "more",
    [{"compose": "net", "corners": 2}, {"num_layers": 2, "pool": "attention", "patch": 2, "dropout_hidden": 0.2}],
    ids=["net", "lstm"],
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(more: dict[str, Any], bars: str, tmp_path: Path) -> None:
    more |= {"dropout_input": 0.1, "dropout_output": 0.2, "class_weights": "balanced", "steps": 12}
    straight = make(tmp_path / "a", bars, **more)
    straight.train()
    stop_after(make(tmp_path / "b", bars, **more), 5)
    torch.manual_seed(99)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert resumed.step == straight.step == 12
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert straight.best_metrics == resumed.best_metrics


def test_what_lies_beside_what_is_learned_where_pixels_alone_tell_nothing(bars: str, tmp_path: Path) -> None:
    make(tmp_path / "run", bars, steps=150, lr=0.02).train()
    model = recur.load(tmp_path / "run", task="grid")
    found = model.evaluate()
    others = {row["model"]: row["accuracy"] for row in found["beside"]}
    assert (
        set(others) == {"always columns", "nearest mean of a class", "softmax of the pixels"} or "always rows" in others
    )
    assert found["accuracy"] == 1.0
    assert found["images"] == 20
    images, labels = crosses(60, seed=9)
    assert [model(image) for image in images] == np.array(["rows", "columns"])[labels].tolist()
    assert {"input", "output", "probabilities"} <= set(next(iter(model.predictions([bars]))))


def test_several_runs_classify_as_one(bars: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        make(tmp_path / str(seed), bars, steps=3, seed=seed).train()
    both = recur.tasks.open_predictor([tmp_path / "0", tmp_path / "1"])
    apart = [recur.load(tmp_path / str(seed)) for seed in (0, 1)]
    image = crosses(1)[0][0]
    p = [next(iter(model.predictions([image])))["probabilities"]["rows"] for model in (both, *apart)]
    assert p[0] == pytest.approx((p[1] + p[2]) / 2, abs=1e-6)


def test_plain_classifiers_are_what_they_say() -> None:
    draw = np.random.default_rng(1)
    labels = np.arange(160) % 3
    images = draw.normal(0, 1, (3, 4, 5))[labels] + draw.normal(0, 2.0, (160, 4, 5))
    options = options_of(pixel_deviation=[2.0])
    examples = [
        ImageExample(torch.from_numpy(i).float()[..., None], int(k)) for i, k in zip(images, labels, strict=True)
    ]
    train, measured = examples[:100], examples[100:]
    x, y = pixels_of(train, options)
    theirs = LogisticRegression(C=1 / (0.01 * 100), max_iter=5000).fit(x.numpy(), y.numpy())
    expected = theirs.predict(pixels_of(measured, options)[0].numpy()).tolist()
    assert 10 < sum(a != b for a, b in zip(expected, labels[100:], strict=True)) < 40, "neither easy nor hopeless"
    assert softmax_of_pixels(train, measured, options, 3) == expected
    means = np.stack([images[:100][labels[:100] == k].mean(0) for k in range(3)])
    nearest = [int(((means - image) ** 2).sum((1, 2)).argmin()) for image in images[100:]]
    assert nearest_mean(train, measured, options, 3) == nearest


def test_what_is_left_open_is_settled_by_the_training_images(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {"x_train": draw.normal(7, 3, (40, 40, 20, 3)), "y_train": np.arange(40) % 2}
    np.savez(tmp_path / "a.npz", x_test=np.zeros((2, 40, 20, 3)), y_test=np.arange(2), **arrays)
    path = str(tmp_path / "a.npz")
    found = task_class("grid").settle(make_options("grid", {"texts": path}))
    assert (found.test, found.valid, found.patch) == ((f"{path}:test",), (), 3)
    assert found.pixel_mean == pytest.approx((7, 7, 7), abs=0.1)
    assert found.pixel_deviation == pytest.approx((3, 3, 3), abs=0.1)
    task = task_class("grid")(found)
    data = task.read()
    assert (len(data.train), len(data.valid)) == (38, 2)
    described = "38 images of 40 × 20 pixels, colour, for training (images x_train, labels y_train)"
    assert task.describe(data) == f"{described}: 14 × 7 points of 3 × 3 pixels, 2 classes"


def test_folders_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for k, (image, label) in enumerate(zip(*crosses(60), strict=True)):
        folder = Path("bars") / ("rows", "columns")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(image).save(folder / f"{k}.png")
    quick = ["--hidden-size", "4", "--threads", "1", "--steps", "3"]
    assert run(["train", "bars", *quick, "--out", "run"]) == 0
    assert "bars holds a folder of images for each class: --task grid" in capsys.readouterr().err
    assert run(["resume", "run", "--steps", "2", "-q"]) == 0
    capsys.readouterr()
    assert {"accuracy", "macro_f1", "confusion", "beside"} <= set(json_of(capsys, "eval", "run"))
    assert json_of(capsys, "eval", "run", "bars")["images"] == 60
    one = next(Path("bars/rows").iterdir())
    predicted = json_of(capsys, "predict", "run", str(one), "bars")["predictions"]
    assert len(predicted) == 61
    assert predicted[0]["input"] == str(one)
    Pillow.fromarray(np.zeros((9, 9), np.uint8)).save("bars/rows/large.png")
    for command, said in {
        "train bars --out new": "--size 6 scales all to one size",
        "predict run": "name the files to predict",
        "predict run nothing.png": "no file 'nothing.png'",
        "train bars --cell gru --out new": "--cell belongs to adding",
        "train bars --corners 3 --out new": "unknown corners 3",
    }.items():
        assert run(command.split()) == 2
        error = capsys.readouterr().err.strip().splitlines()
        assert said in error[-1], command
        assert len(error) == 1 + command.startswith(("train bars --out", "train bars --corners")), (
            "what the folder was taken for stands before it"
        )
    assert run(["train", "bars", "--size", "8", "--corners", "2", *quick, "--out", "scaled", "-q"]) == 0
    assert {"size = 8", "corners = 2"} <= set(Path("scaled/config.toml").read_text().splitlines())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"pixel_mean": [1.0]}, "pixel_mean and pixel_deviation have one number for each"),
        ({"pixel_mean": [1.0], "pixel_deviation": [0.0]}, "pixel_deviation must be above 0"),
    ],
)
def test_numbers_that_cannot_be(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make_options("grid", fields)


def test_a_label_never_seen_is_named(bars: str, tmp_path: Path) -> None:
    make(tmp_path / "run", bars, steps=2).train()
    np.savez(tmp_path / "new.npz", x=np.zeros((1, 6, 6)), y=np.array(["circle"]))
    with pytest.raises(TextError, match=r"new.npz\[0\]: label 'circle' is not in the training set"):
        recur.load(tmp_path / "run").evaluate([str(tmp_path / "new.npz")])
