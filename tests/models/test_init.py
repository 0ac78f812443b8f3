"""How models start: --init reaches V in every model that takes it, and embeddings start so that they are read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from recur.data.text import UNK
from recur.errors import OptionError
from recur.models import Classifier, ConditionalModel, Forecaster, LanguageModel, Regressor, Seq2Seq, Tagger
from recur.models.forecaster import ForecasterSizes
from recur.models.layers import draw_embedding
from recur.models.options import (
    ClassifierOptions,
    DecoderOptions,
    EncoderDecoderOptions,
    ForecasterOptions,
    LanguageModelOptions,
    SequenceOptions,
    TaggerOptions,
)

K, H = 60, 80


def heads(init: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Every model's output matrices with their biases."""
    torch.manual_seed(0)
    shared = {"init": init, "hidden_size": H, "cell": "elman"}
    language = LanguageModel(K, LanguageModelOptions(**shared))
    assert language.output is not None
    found: dict[str, tuple[Tensor, Tensor]] = {"language": (language.output, language.bias)}
    conditional = ConditionalModel(3, K, DecoderOptions(**shared, stop="bernoulli")).decoder
    seq2seq = Seq2Seq(K, K, EncoderDecoderOptions(**shared, stop="length")).decoder
    forecaster = Forecaster(ForecasterSizes(30, known=2), (0.1, 0.5, 0.9), 1, ForecasterOptions(**shared))
    window = Forecaster(ForecasterSizes(30), (0.5,), 1, ForecasterOptions(**shared, lags=70))
    assert window.network is not None
    layers = {
        "tagger": Tagger(K, K, TaggerOptions(**shared, direction="both")).output,
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
    net = LanguageModel(K, LanguageModelOptions(init="normal:0.01", hidden_size=H, embedding_size=50, tie_weights=True))
    assert net.narrow is not None
    assert net.narrow.weight.std().item() == pytest.approx(0.01, rel=0.05)
    drawn = LanguageModel(K, LanguageModelOptions(init="normal:0.01", init_range=0.2, hidden_size=H))
    assert drawn.output is not None
    assert drawn.output.abs().max() > 0.19, "one range for all weights comes last"


# Embeddings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("types", "deviation"), [(9, 1.0), (16, 1.0), (64, 0.5), (400, 0.2), (10_000, 0.04)])
def test_an_embedding_is_scaled_to_the_number_of_its_tokens(types: int, deviation: float) -> None:
    torch.manual_seed(0)
    weight = draw_embedding(types, 200, "scaled")
    assert (weight[UNK] == 0).all()
    assert weight[1:].std().item() == pytest.approx(deviation, rel=4 / (2 * weight[1:].numel()) ** 0.5)
    assert weight.abs().max() > 2 * deviation, "normal, not uniform"


@pytest.mark.parametrize("init", ["scaled:1", "normal", "uniform:", "uniform:0", "normal:x", "", "torch"])
def test_what_is_no_initialisation(init: str) -> None:
    with pytest.raises(OptionError, match="scaled, or uniform:a or normal:σ"):
        draw_embedding(9, 4, init)


def test_outputs_that_depend_on_each_other_are_learned_from_the_first_steps_on() -> None:
    """y_t = y_{t−1} xor x_t: who reads what was written before knows all but the first. In ± 0.1 the loss stays at
    ln 2 = 0.693 for hundreds of steps."""
    losses = {init: aligned_loss(init) for init in ("scaled", "uniform:0.1")}
    assert losses["scaled"] < 0.3, "ln 2 / 8 = 0.087 in the end"
    assert losses["uniform:0.1"] > 0.68


def aligned_loss(init: str, steps: int = 100, B: int = 32, T: int = 8) -> float:
    torch.manual_seed(0)
    options = {"hidden_size": 32, "embedding_size": 16, "condition": "aligned", "stop": "source", "attention": "none"}
    model = Seq2Seq(6, 6, EncoderDecoderOptions(**options, embedding_init=init))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    lengths = torch.full((B,), T)
    for _ in range(steps):
        bits = torch.randint(2, (B, T))
        source, target = bits + 4, bits.cumsum(1) % 2 + 4
        flip = torch.randint(2, (B, 1))
        target = 4 + (target - 4 + flip) % 2  # the first is not to be known
        optimizer.zero_grad()
        loss = model.decoder.loss(model(source, lengths, target, lengths), target, lengths).mean() / T
        loss.backward()
        optimizer.step()
    return float(loss.detach())
