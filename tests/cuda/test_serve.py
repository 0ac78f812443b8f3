"""Sessions whose states stay on the GPU by slot, against the same ones on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from recur.models import LanguageModel
from recur.serve.state_pool import CudaStatePool, LanguageNetwork, StatePool, make_state_pool
from recur.tasks import make_options
from tests.cuda.support import needs_gpu

pytestmark = needs_gpu

K, SLOTS = 23, 40
ROUNDING = 2e-5
"""Of probabilities and outputs: the same products of float32, added up in another order."""


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_bank_on_the_gpu_is_the_bank_on_the_cpu(cell: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any slots, new sessions among old ones, texts read in one piece, states that come and go."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    options = make_options("language", {"cell": cell, "hidden_size": 48, "num_layers": layers, "embedding_size": 16})
    model = LanguageModel(K, options).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        here = StatePool(LanguageNetwork(model, torch.device("cpu")), SLOTS)
        on_gpu = LanguageNetwork(copy.deepcopy(model).to("cuda"), torch.device("cuda"))
        there = make_state_pool(on_gpu, SLOTS)
        assert isinstance(there, CudaStatePool)

        def compare(a: torch.Tensor, b: torch.Tensor) -> None:
            torch.testing.assert_close(a.softmax(-1), b.cpu().softmax(-1), rtol=0, atol=ROUNDING)

        dice = torch.Generator().manual_seed(1)
        for n in (1, 3, 30, SLOTS, 2, SLOTS):
            slots = torch.randperm(SLOTS, generator=dice)[:n].tolist()
            tokens = torch.randint(K, (n,), generator=dice).tolist()
            compare(here.step(slots, tokens), there.step(slots, tokens))
        texts = [torch.randint(K, (n,), generator=dice).tolist() for n in (5, 1, 17)]
        here.reset(8)
        there.reset(8)
        found, lengths = here.scan([3, 8, 1], texts)
        other, _ = there.scan([3, 8, 1], texts)
        for k, length in enumerate(lengths):
            torch.testing.assert_close(found[k, :length], other[k, :length].cpu(), rtol=0, atol=ROUNDING)
        compare(here.last_scores([1, 8]), there.last_scores([1, 8]))
        state = there.state(3)
        assert state is not None
        there.set_state(20, state)
        again = there.state(20)
        assert again is not None
        assert all(torch.equal(a, b) for a, b in zip(state, again, strict=True))
        both = there.step([3, 20], [7, 7])
        compare(both[:1].cpu(), both[1:])
        compare(here.step([3], [7]), both[:1])
        there.set_state(20, None)
        assert there.state(20) is None
        here.reset(20)
        compare(here.step([20, 1], [4, 5]), there.step([20, 1], [4, 5]))
