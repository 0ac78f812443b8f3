"""The network of a run as Step takes it: one layer of Elman, LSTM or GRU, its embedding multiplied into U.

A token's vector is a column of E, so U E has one column a token, and x is one-hot as in the notes. The numbers are
compared with the network's own; a network that is not this, whatever its options, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recur.data.text import UNK, Vocab
from recur.errors import RunError, TextError
from recur.i18n import Message
from recur.models.language import LanguageModel
from recur.studio.equations.network import Network, Pass
from recur.studio.equations.textbook import TEXTBOOK
from recur.studio.loaded import LoadedModel

Array = NDArray[np.float64]
ALIKE = 1e-4
"""How far float32 may lie from float64, in logits relative to the largest."""
ACTIVATIONS = {"tanh": "tanh", "relu": "ReLU", "sigmoid": "σ"}


@dataclass
class RunNetwork:
    cell: str
    text: str
    """Its equations."""
    weights: dict[str, Array]
    vocab: Vocab
    activation: str = ""

    def encode(self, text: str) -> list[int]:
        found = []
        for sign in text:
            k = self.vocab.ids.get(sign, UNK)
            if k == UNK:
                raise TextError(
                    Message("the run has not seen {sign}: its vocabulary does not have it", sign=repr(sign))
                )
            found.append(k)
        return found

    def symbol(self, k: int) -> str:
        return self.vocab.tokens[k]

    def telling_units(self, network: Network, found: Pass, count: int) -> list[int]:
        """The units with the largest gradient along this text: a change of them changes the loss most."""
        k = network.equations.output
        norms = np.sqrt(np.sum([gradients[k] ** 2 for gradients in found.gradients], axis=0))
        return sorted(np.argsort(-norms, kind="stable")[:count].tolist())

    def difference(self, model: LoadedModel, found: Pass, ids: list[int]) -> float:
        """How far the network's own logits are, relative to the largest; refused where that is not rounding."""
        with torch.no_grad():
            theirs = model.language.model(torch.tensor([ids[:-1]])).logits[0].double().numpy()
        ours = np.stack([step[-3] for step in found.values])
        apart = float(np.abs(theirs - ours).max() / max(1.0, np.abs(theirs).max()))
        if not apart < ALIKE:
            name = model.predictor.run.path.name
            raise RunError(Message("{run} computes more than one layer of its cell; Step cannot show it", run=name))
        return apart


def network_of(model: LoadedModel) -> RunNetwork:
    """The weights of a run; refused where it has more than one layer, or another cell."""
    language = model.language
    network: LanguageModel = language.model
    name = language.run.path.name
    net: Any = network.recurrent
    cell = getattr(net, "cell", None)
    kind = getattr(type(cell), "name", "")
    if kind not in TEXTBOOK or net.layers != 1 or language.backward or network.bias is None:
        raise RunError(
            Message("{run}: Step reads runs with one layer of elman, lstm or gru that read forward", run=name)
        )
    if language.vocab.tokenizer.kind != "char":
        raise RunError(Message("{run} reads words; Step spells, one character a step", run=name))
    book, text = TEXTBOOK[kind], TEXTBOOK[kind].text
    activation = str(getattr(cell, "activation", "")) if kind == "elman" else ""
    text = text.replace("tanh", ACTIVATIONS[activation]) if activation else text
    own = {key: value.detach().double().numpy() for key, value in net.weights("_l0").items()}
    E = np.eye(network.K) if network.embedding.weight is None else network.embedding.weight.detach().double().numpy()
    if own["weight_ih"].shape[1] != E.shape[1]:
        raise RunError(Message("{run} computes more than one layer of its cell; Step cannot show it", run=name))
    count = len(book.gates)
    zero = np.zeros(len(own["weight_ih"]))
    b, d = (np.split(own.get(key, zero), count) for key in ("bias_ih", "bias_hh"))
    weights: dict[str, Array] = {}
    for k, (gate, U, W) in enumerate(
        zip(book.gates, np.split(own["weight_ih"], count), np.split(own["weight_hh"], count), strict=True)
    ):
        end = f"_{gate}" if gate else ""
        apart = kind == "gru" and gate == "h"  # r acts on the second bias too
        weights |= {f"U{end}": U @ E.T, f"W{end}": W, f"b{end}": b[k] if apart else b[k] + d[k]}
        if apart:
            weights[f"d{end}"] = d[k]
    weights["V"] = network.output_matrix().detach().double().numpy()
    weights["c_y" if kind == "lstm" else "c"] = network.bias.detach().double().numpy()
    return RunNetwork(kind, text, weights, language.vocab, activation)
