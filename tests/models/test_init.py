"""--init reaches the output matrix V of every model that takes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from recur.models import Classifier, ConditionalModel, Forecaster, LanguageModel, Regressor, Seq2Seq, Tagger
from recur.models.options import (
    ClassifierOptions,
    DecoderOptions,
    EncoderDecoderOptions,
    ForecasterOptions,
    LanguageModelOptions,
    ReaderOptions,
    SequenceOptions,
)

K, H = 60, 80


def heads(init: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Every model's output matrices with their biases."""
    torch.manual_seed(0)
    shared = {"init": init, "hidden": H, "cell": "elman"}
    language = LanguageModel(K, LanguageModelOptions(**shared))
    assert language.output is not None
    found: dict[str, tuple[Tensor, Tensor]] = {"language": (language.output, language.bias)}
    conditional = ConditionalModel(3, K, DecoderOptions(**shared, stop="bernoulli")).decoder
    seq2seq = Seq2Seq(K, K, EncoderDecoderOptions(**shared, stop="length")).decoder
    forecaster = Forecaster(2, 30, (0.1, 0.5, 0.9), 1, ForecasterOptions(**shared))
    window = Forecaster(0, 30, (0.5,), 1, ForecasterOptions(**shared, lags=70))
    assert window.network is not None
    layers = {
        "tagger": Tagger(K, K, ReaderOptions(**shared, direction="both")).output,
        "classifier": Classifier(K, K, ClassifierOptions(**shared)).output,
        "conditional": conditional.symbols,
        "conditional, stop": conditional.stop,
        "seq2seq": seq2seq.symbols,
        "seq2seq, length": seq2seq.length,
        "regressor": Regressor(4, SequenceOptions(**shared)).output,
        "forecaster": forecaster.output,
        "forecaster of a window": window.output,
        "forecaster of a window, U": window.network[0],
    }
    for name, layer in layers.items():
        assert isinstance(layer, nn.Linear)
        found[name] = layer.weight, layer.bias
    return {name: (weight.detach(), bias.detach()) for name, (weight, bias) in found.items()}


@pytest.mark.parametrize(("init", "deviation"), [("normal:0.01", 0.01), ("normal:0.3", 0.3), ("identity", 0.001)])
def test_normal_schemes(init: str, deviation: float) -> None:
    for name, (V, bias) in heads(init).items():
        rough = 4 / (2 * V.numel()) ** 0.5  # four standard errors of a deviation
        assert V.std().item() == pytest.approx(deviation, rel=rough), name
        assert V.abs().max() > 2 * deviation, f"{name}: uniform numbers are never so far out"
        assert (bias == 0).all(), name


@pytest.mark.parametrize("init", ["glorot", "orthogonal"])
def test_glorot_by_the_matrix_own_widths(init: str) -> None:
    for name, (V, bias) in heads(init).items():
        bound = (6 / sum(V.shape)) ** 0.5
        assert 0.9 * bound < V.abs().max() <= bound, name
        assert (bias == 0).all(), name


def test_torch_is_as_a_linear_layer_is() -> None:
    for name, (V, _) in heads("torch").items():
        bound = V.shape[1] ** -0.5
        assert 0.9 * bound < V.abs().max() <= bound, name


def test_tied_to_an_embedding_of_another_width_the_matrix_between_is_filled_too() -> None:
    net = LanguageModel(K, LanguageModelOptions(init="normal:0.01", hidden=H, embedding=50, tied=True))
    assert net.narrow is not None
    assert net.narrow.weight.std().item() == pytest.approx(0.01, rel=0.05)
    drawn = LanguageModel(K, LanguageModelOptions(init="normal:0.01", init_range=0.2, hidden=H))
    assert drawn.output is not None
    assert drawn.output.abs().max() > 0.19, "one range for all weights comes last"
