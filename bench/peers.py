"""Code written for torch.nn, unchanged, with recur.nn in place of it: outputs and gradients compared.

python -m bench.peers                                   the packages that are installed (pip install 'recur[peers]')
python -m bench.peers word_language_model=PATH …        files of a checkout of the repository that CHECKOUTS names

Each case runs twice, in a process of its own: once with the classes of torch.nn, once with those of recur.nn in their
place before anything else is imported. Same seed, same weights, same dropout masks: every tensor must agree within
TOLERANCE of the largest value in it. A case that needs a package that is not installed says so and is skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import random
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TOLERANCE = 1e-4
KINDS = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
Tensors = dict[str, Tensor]

CHECKOUTS = {
    "word_language_model": "pytorch/examples, folder word_language_model",
    "time_sequence_prediction": "pytorch/examples, folder time_sequence_prediction",
    "snli": "pytorch/examples, folder legacy/snli",
    "awd_lstm": "salesforce/awd-lstm-lm",
    "cleanrl": "vwxyzjn/cleanrl",
    "espnet": "espnet/espnet",
    "ncrfpp": "jiesutd/NCRFpp",
}


def gradients(model: nn.Module, loss: Tensor) -> Tensors:
    """The loss, and the gradient of every weight that has one."""
    model.zero_grad()
    loss.backward()
    found = {f"∂ {name}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


def detached(state: Any) -> Any:
    return state.detach() if isinstance(state, Tensor) else tuple(map(detached, state))


# Repositories ---------------------------------------------------------------------------------------------------------


def word_language_model() -> Tensors:
    """Two windows of the language model of each kind, the state carried."""
    RNNModel, found = importlib.import_module("model").RNNModel, Tensors()
    for kind in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
        torch.manual_seed(0)
        model = RNNModel(kind, 50, 32, 32, 2, dropout=0.4, tie_weights=True)
        state = model.init_hidden(5)
        for window in range(2):
            tokens = torch.randint(50, (13, 5))
            out, state = model(tokens, detached(state))
            loss = nn.functional.nll_loss(out, torch.randint(50, (65,)))
            found |= {f"{kind} {window} {name}": value for name, value in gradients(model, loss).items()}
    return found


def time_sequence_prediction() -> Tensors:
    """Sine waves by two LSTM cells in float64: a step of LBFGS, and a prediction of the future."""
    model = importlib.import_module("train").Sequence().double()
    waves = torch.sin(torch.arange(60) / 4 + torch.arange(5)[:, None]).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(waves[:, :-1]), waves[:, 1:])
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert isinstance(first, Tensor)
    with torch.no_grad():
        return {"loss": first, "future": model(waves[:, :-1], future=50)}


def snli() -> Tensors:
    config = types.SimpleNamespace(
        n_embed=40, d_embed=24, d_proj=20, d_hidden=16, d_out=3, n_layers=2, n_cells=4, dp_ratio=0.2, birnn=True,
        projection=True, fix_emb=True,
    )  # fmt: skip
    model = importlib.import_module("model").SNLIClassifier(config)
    batch = types.SimpleNamespace(premise=torch.randint(40, (9, 6)), hypothesis=torch.randint(40, (7, 6)))
    return gradients(model, cross_entropy(model(batch), torch.randint(3, (6,))))


def awd_lstm() -> Tensors:
    """Weight-dropped LSTM: W is a plain attribute, drawn anew at every call."""
    model = importlib.import_module("model").RNNModel("LSTM", 40, 24, 32, 3, wdrop=0.5, tie_weights=True)
    state, found = model.init_hidden(4), Tensors()
    for window in range(2):
        out, state = model(torch.randint(40, (11, 4)), detached(state))
        loss = cross_entropy(out.view(-1, out.shape[-1]), torch.randint(out.shape[-1], (44,)))
        found |= {f"{window} {name}": value for name, value in gradients(model, loss).items()}
    return found


def cleanrl() -> Tensors:
    """The agent of ppo_atari_lstm: the LSTM step by step, its state cleared where an episode ends."""
    agent = importlib.import_module("cleanrl.ppo_atari_lstm").Agent(
        types.SimpleNamespace(single_action_space=types.SimpleNamespace(n=4))
    )
    frames, done = torch.randint(255, (6 * 8, 1, 84, 84)).float(), (torch.rand(48) < 0.2).float()
    state = (torch.zeros(1, 8, 128), torch.zeros(1, 8, 128))
    _, logprob, entropy, value, state = agent.get_action_and_value(frames, state, done, torch.randint(4, (48,)))
    with torch.no_grad():
        acting = agent.get_value(frames[:8], state, done[:8])
    return {"acting": acting, **gradients(agent, (logprob + entropy + value.squeeze(-1)).square().mean())}


def espnet() -> Tensors:
    """The encoders RNN and RNNP over packed sequences."""
    encoders, found = importlib.import_module("espnet2.legacy.nets.pytorch_backend.rnn.encoders"), Tensors()
    x, lengths = torch.randn(4, 21, 10), torch.tensor([21, 18, 9, 5])
    for kind in ("blstm", "lstm", "bgru", "gru"):
        for name, encoder in (
            ("RNN", encoders.RNN(10, 2, 12, 8, 0.2, kind)),
            ("RNNP", encoders.RNNP(10, 2, 12, 8, [1, 2, 1], 0.0, kind)),
        ):
            out, _, _ = encoder(x, lengths)
            pieces = gradients(encoder, out.square().sum())
            found |= {f"{name} {kind} {key}": value for key, value in pieces.items()}
    return found


def ncrfpp() -> Tensors:
    """The sequence labeller: characters by a bidirectional layer, words by another, both packed."""
    model_of = importlib.import_module("model.wordsequence").WordSequence
    found = Tensors()
    for kind in ("LSTM", "GRU"):
        character, word = types.SimpleNamespace(size=lambda: 20), types.SimpleNamespace(size=lambda: 30)
        data = types.SimpleNamespace(
            word_feature_extractor=kind, char_feature_extractor=kind, use_char=True, feature_num=0, HP_gpu=False,
            HP_batch_size=3, HP_dropout=0.0, HP_bilstm=True, HP_lstm_layer=2, HP_char_hidden_dim=8, HP_hidden_dim=16,
            word_emb_dim=12, char_emb_dim=6, feature_emb_dims=[], label_alphabet_size=5, char_alphabet=character,
            word_alphabet=word, feature_alphabets=[], pretrain_char_embedding=None, pretrain_word_embedding=None,
            pretrain_feature_embeddings=[], sentence_classification=False,
        )  # fmt: skip
        model, lengths = model_of(data), torch.tensor([7, 5, 2])
        words, characters = torch.randint(30, (3, 7)), torch.randint(20, (21, 9))
        ends, order = torch.randint(1, 10, (21,)).sort(descending=True)
        out = model(words, [], lengths, characters[order], ends, order.argsort())
        found |= {f"{kind} {key}": value for key, value in gradients(model, out.square().sum()).items()}
    return found


# Packages -------------------------------------------------------------------------------------------------------------


def sb3_contrib() -> Tensors:
    """RecurrentPPO on CartPole: two updates, every weight afterwards."""
    from sb3_contrib import RecurrentPPO

    agent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    agent.learn(128)
    return {name: value.clone() for name, value in agent.policy.state_dict().items()}


def speechbrain() -> Tensors:
    for package in ("torchaudio", "soundfile"):  # which it imports, and its recurrent layers do not use
        if importlib.util.find_spec(package) is None:
            sys.modules[package] = mock.MagicMock(__version__="2.10.0", __spec__=None)
    layers, found, x = importlib.import_module("speechbrain.nnet.RNN"), Tensors(), torch.randn(4, 17, 10)
    for kind in ("RNN", "LSTM", "GRU"):
        layer = getattr(layers, kind)(
            hidden_size=12, input_shape=x.shape, num_layers=2, dropout=0.2, bidirectional=True
        )
        out, _ = layer(x, lengths=torch.tensor([1.0, 0.8, 0.5, 0.2]))
        found |= {f"{kind} {key}": value for key, value in gradients(layer, out.square().sum()).items()}
    return found


def pytorch_forecasting() -> Tensors:
    """Its own LSTM and GRU, which inherit from its base class and from those of torch.nn."""
    rnn, found = importlib.import_module("pytorch_forecasting.models.nn.rnn"), Tensors()
    x, lengths = torch.randn(5, 12, 6), torch.tensor([12, 9, 1, 7, 0])
    for kind in ("LSTM", "GRU"):
        layer = rnn.get_rnn(kind)(6, 8, num_layers=2, dropout=0.1, batch_first=True)
        state = layer.init_hidden_state(x)
        out, state = layer(x, hx=state, lengths=lengths, enforce_sorted=False)
        empty = (lengths == 0)[None, :, None]
        last = layer.repeat_interleave(layer.handle_no_encoding(state, empty, layer.init_hidden_state(x)), 2)
        found |= {f"{kind} {key}": value for key, value in gradients(layer, out.square().sum()).items()}
        found[f"{kind} last"] = (last[0] if isinstance(last, tuple) else last).detach()
    return found


def lightning() -> Tensors:
    """A module trained by a Trainer for eight steps, saved as a checkpoint and opened again."""
    import lightning as L

    class Tagger(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(5, 16, 2, batch_first=True, dropout=0.3, bidirectional=True)
            self.out = nn.Linear(32, 3)

        def training_step(self, batch: Any, index: int) -> Tensor:
            x, y = batch
            return cross_entropy(self.out(self.rnn(x)[0]).flatten(0, 1), y.flatten())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-3)

    data = torch.utils.data.TensorDataset(torch.randn(32, 9, 5), torch.randint(3, (32, 9)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder,
        )  # fmt: skip
        model = Tagger()
        trainer.fit(model, torch.utils.data.DataLoader(data, 8))
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        again = Tagger.load_from_checkpoint(f"{folder}/last.ckpt", map_location="cpu", weights_only=True)
    return {name: value.clone() for name, value in again.state_dict().items()}


PACKAGES: dict[str, Callable[[], Tensors]] = {
    case.__name__: case for case in (sb3_contrib, speechbrain, pytorch_forecasting, lightning)
}
CASES: dict[str, Callable[[], Tensors]] = PACKAGES | {
    case.__name__: case
    for case in (word_language_model, time_sequence_prediction, snli, awd_lstm, cleanrl, espnet, ncrfpp)
}
"""The cases by name: those of installed packages, and those that read a checkout."""


# Both sides -----------------------------------------------------------------------------------------------------------


def replace_classes() -> None:
    """Put the classes of recur.nn in the place of those of torch.nn."""
    import recur.nn

    for kind in KINDS:
        setattr(nn, kind, getattr(recur.nn, kind))


def run_side(side: str, name: str, path: str, file: str) -> None:
    """Run a case in this process, and save its tensors."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if side == "recur":
        replace_classes()
    if path:
        sys.path.insert(0, path)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.save(CASES[name](), file)


def compare(name: str, path: str = "") -> str:
    """Run a case on both sides; return what was found in one line."""
    sides = []
    with tempfile.TemporaryDirectory() as folder:
        for side in ("torch", "recur"):
            file = f"{folder}/{side}.pt"
            call = [sys.executable, "-m", "bench.peers", "--side", json.dumps([side, name, path, file])]
            ran = subprocess.run(call, capture_output=True, text=True)
            if ran.returncode:
                why = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
                return f"{'skipped' if 'ModuleNotFoundError' in why else 'FAILED'}, with {side}.nn: {why}"
            sides.append(torch.load(file))
    theirs, ours = sides
    if theirs.keys() != ours.keys():
        return f"FAILED: only one side has {sorted(theirs.keys() ^ ours.keys())[:3]}"
    off = {key: relative_difference(ours[key], value) for key, value in theirs.items()}
    worst = max(off, key=lambda key: off[key])
    passed = off[worst] <= TOLERANCE
    return f"{'passed' if passed else 'FAILED'}: {len(off)} tensors, off by at most {off[worst]:.1e} ({worst})"


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest value or 1e-3; infinite for other shapes."""
    if ours.shape != theirs.shape or not torch.isfinite(ours).all():
        return float("inf")
    if not theirs.numel():
        return 0.0
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1e-3))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--side"]:
        run_side(*json.loads(arguments[1]))
        return 0
    paths = dict(argument.partition("=")[::2] for argument in arguments)
    for name, path in paths.items():
        if name not in CHECKOUTS or not Path(path).is_dir():
            known = ", ".join(f"{case} ({where})" for case, where in CHECKOUTS.items())
            print(f"expected NAME=FOLDER, got {name}={path}; names: {known}", file=sys.stderr)
            return 2
    results = [(name, compare(name, paths.get(name, ""))) for name in paths or PACKAGES]
    for name, result in results:
        print(f"{name:<26}{result}")
    return int(any(result.startswith("FAILED") for _, result in results))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
