"""A text in lanes is the text in one piece, whatever the network remembers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recur.models import LanguageModel
from recur.tasks import make_options
from recur.tasks.language import evaluation
from recur.tasks.language.evaluation import total_loss

K = 12


def model_of(**fields: Any) -> LanguageModel:
    made = make_options("language", {"hidden_size": 10, "embedding_size": 6, **fields})
    return LanguageModel(K, made).double().eval()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"cell": "lstm", "num_layers": 3, "top_hidden_size": 7},
        {"initial": "learned"},
        {"cell": "lstm", "forget_bias": 30.0},
        {"cell": "lstm", "forget_bias": 6.0},
        {"softmax": "adaptive"},
        {"time_input": True, "time_scale": 900.0},
        {"recurrence": "output"},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_lanes_are_exact(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "WARM_UP", 40)
    model = model_of(**fields)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1 and not p.any():  # a state that is learned starts at zero
                p.normal_()
            elif p.dim() == 2:
                p.mul_(2)
        if "forget_bias" in fields:  # what is remembered has to matter
            model.output.mul_(20)  # type: ignore[union-attr]
    ids = torch.randint(0, K, (906,))
    x, y, at = ids[:-1], ids[1:], 5
    start = torch.tensor([at]) if "time_input" in fields else None
    whole = model(x[None], start=start).logits[0].log_softmax(-1).gather(1, y[:, None]).sum()
    done: list[int] = []
    assert total_loss(model, x, y, 8, done.append, at) == pytest.approx(-float(whole.detach()), rel=1e-9)
    assert sum(done) == len(x)
