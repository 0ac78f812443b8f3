"""Training on a GPU: recorded steps are those that are not, dropout and all; and a run goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recur.models import LanguageModel
from recur.nn.functional import linear_cross_entropy
from recur.runs import autocast_in
from recur.tasks import make_options
from recur.tasks.language import adapting
from recur.training import Trainer
from tests.cuda.support import needs_gpu
from tests.small_runs import begin, reopen, stop_after

pytestmark = [*needs_gpu, pytest.mark.filterwarnings("ignore")]  # PyTorch's own, of streams that graphs are captured on

TEXT = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 60
SMALL: dict[str, Any] = {
    "hidden_size": 24,
    "batch_size": 8,
    "window": 10,
    "eval_every": 1,
    "baseline": False,
    "device": "cuda",
}
DROPS = {
    "embedding_size": 16,
    "dropout_embedding": 0.1,
    "dropout_input": 0.2,
    "dropout_weight": 0.3,
    "dropout_output": 0.2,
}
WAYS: list[dict[str, Any]] = [
    {"precision": "float32", "optimizer": "sgd", "lr": 1.0},
    {"precision": "tf32", "num_layers": 2, "dropout_hidden": 0.2},
    {
        "precision": "bfloat16",
        "cell": "lstm",
        "num_layers": 3,
        "top_hidden_size": 16,
        "tie_weights": True,
        "variational": True,
    },
    {"precision": "float16", "cell": "lstm", "jitter": True, "alpha": 1.0, "beta": 1.0},
    {"precision": "bfloat16", "partition": "random", "softmax": "sampled", "softmax_samples": 8},
]


def trained(path: Path, **fields: Any) -> Trainer:
    (path.parent / "book.txt").write_text(TEXT)
    made = begin(path, texts=str(path.parent / "book.txt"), **{**SMALL, **DROPS, "steps": 60, **fields})
    made.train()
    return made


def same(a: Trainer, b: Trainer) -> None:
    for (name, x), y in zip(a.model.state_dict().items(), b.model.state_dict().values(), strict=True):
        assert torch.equal(x, y), name


@pytest.mark.parametrize("fields", WAYS, ids=lambda fields: str(fields["precision"]))
def test_recorded_steps_are_the_same_steps(fields: dict[str, Any], tmp_path: Path) -> None:
    recorded, plain = (trained(tmp_path / graph, graph=graph, **fields) for graph in ("on", "off"))
    assert recorded.graphs is not None
    assert recorded.graphs._captured
    assert plain.graphs is None
    same(recorded, plain)


OTHERS: dict[str, dict[str, Any]] = {
    "adding": {"length": 20, "cell": "lstm", "chrono": 20},
    "copy": {"length": 20, "cell": "gru", "precision": "tf32"},
    "copy, affine": {"length": 20, "cell": "lru", "num_layers": 2, "residual": True, "average": 0.9},
    "copy, output": {"length": 20, "recurrence": "output"},
    "classify": {
        "texts": "even.npz",
        "direction": "both",
        "num_layers": 2,
        "dropout_hidden": 0.2,
        "dropout_output": 0.3,
    },
    "classify, weighted": {"texts": "even.npz", "cell": "mingru", "pool": "concat", "class_weights": "balanced"},
    "classify, noise": {"texts": "even.npz", "cell": "lstm", "pool": "self-attention", "noise": 0.1, "grad_clip": 0.5},
    "classify, texts": {"texts": "names.tsv", "token": "char", "dropout_words": 0.1, "blend": False},
    "tag": {"texts": "steps.npz", "cell": "rglru", "variational": True, "dropout_output": 0.2},
    "forecast": {"texts": "series.csv", "target": "y", "horizon": 4, "season": 12, "base": "seasonal", "lags": 0},
    "forecast, windows": {"texts": "series.csv", "target": "y", "horizon": 4, "season": 12, "lags": 24, "base": "none"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_recorded_steps_of_other_tasks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sequences that are all as long: a whole epoch and more, so that its last, smaller batch is recorded too."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((140, 12, 3)).astype(np.float32)
    np.savez("even.npz", x_train=x[:100], y_train=np.arange(100) % 3, x_valid=x[100:], y_valid=np.arange(40) % 3)
    labels = (x.sum(-1) > 0).astype(np.int64)
    np.savez("steps.npz", x_train=x[:100], y_train=labels[:100], x_valid=x[100:], y_valid=labels[100:])
    Path("names.tsv").write_text("".join(f"{k % 2}\t{'ab' if k % 2 else 'xy'}{k % 7}\n" for k in range(140)))
    values = [100 + k + 20 * (k % 12 > 6) for k in range(120)]
    Path("series.csv").write_text(
        "date,y\n" + "".join(f"{1990 + k // 12}-{k % 12 + 1:02},{y}\n" for k, y in enumerate(values))
    )
    fields = {"hidden_size": 16, "batch_size": 8, "steps": 45, "baseline": False, "device": "cuda", **OTHERS[name]}
    made = []
    for graph in ("on", "off"):
        made.append(begin(tmp_path / graph, name.partition(",")[0], graph=graph, **fields))
        made[-1].train()
    recorded, plain = made
    assert recorded.graphs is not None
    assert recorded.graphs._captured
    assert recorded.predictions == plain.predictions
    same(recorded, plain)


def test_a_recorded_run_goes_on_exactly(tmp_path: Path) -> None:
    straight = trained(tmp_path / "a", graph="on", **WAYS[3])
    stopped = begin(
        tmp_path / "b", texts=str(tmp_path / "book.txt"), **{**SMALL, **DROPS, "steps": 60, "graph": "on", **WAYS[3]}
    )
    stop_after(stopped, 23)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    same(straight, resumed)


def test_dynamic_evaluation_is_what_it_is_on_the_cpu() -> None:
    fields: dict[str, Any] = {
        "cell": "lstm",
        "hidden_size": 24,
        "embedding_size": 16,
        "tie_weights": True,
        "num_layers": 2,
    }
    model = LanguageModel(50, make_options("language", fields)).eval()  # type: ignore[arg-type]
    text = torch.randint(0, 50, (403,))
    found = []
    for device in ("cpu", "cuda"):
        model.to(device)
        ids = text.to(device)
        with autocast_in("float32", torch.device(device)):
            sizes = adapting.gradient_sizes(model, ids)
            read = adapting.read_dynamic(model, ids[:-1], ids[1:], adapting.Dynamic(0.002, 0.02), sizes)
        found.append(read.logp.cpu())
    assert (found[0] - found[1]).abs().max() < 1e-3
    assert found[0].std() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_loss_in_chunks(dtype: torch.dtype) -> None:
    """Against PyTorch's own in float64; and the same bits again."""
    N, H, K = 300, 40, 5000
    h, V, c = (torch.randn(*size, device="cuda", requires_grad=True) for size in ((N, H), (K, H), (K,)))
    y = torch.randint(0, K, (N,), device="cuda")
    found = []
    for _ in range(2):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = linear_cross_entropy(h, V, c, y, 0.1, chunk=1 << 20)
        found.append([loss.detach(), *torch.autograd.grad(loss, [h, V, c])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    wide = [p.detach().double().requires_grad_() for p in (h, V, c)]
    logits = wide[0] @ wide[1].t() + wide[2]
    exact = torch.nn.functional.cross_entropy(logits, y, label_smoothing=0.1)
    expected = [exact.detach(), *torch.autograd.grad(exact, wide)]
    for got, value in zip(found[0], expected, strict=True):
        assert (got.double() - value).norm() <= (2e-2 if dtype == torch.bfloat16 else 2e-5) * value.norm()
