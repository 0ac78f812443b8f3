"""Recurrent policy for sb3-contrib: any cell of recur in `RecurrentPPO`.

    RecurrentPPO(RecurrentPolicy, env, policy_kwargs={"cell": "gru", "lstm_hidden_size": 64})

Episodes that end inside a rollout are reset by `Recurrent(x, state, reset=starts)` in one call; sb3-contrib's own
policy calls its LSTM step by step there.

This module needs the extra `rl`: pip install 'recur[rl]'.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recur.cells import CellLike
from recur.errors import OptionError, RecurError
from recur.export import ExportResult, export_step
from recur.nn import Recurrent
from recur.nn.recurrent import NetworkState
from recur.nn.streaming import restart

try:
    _Base: Any = importlib.import_module("sb3_contrib.common.recurrent.policies").RecurrentActorCriticPolicy
    _FlattenExtractor: Any = importlib.import_module("stable_baselines3.common.torch_layers").FlattenExtractor
except ImportError:
    raise RecurError("sb3-contrib is not installed: pip install 'recur[rl]'") from None

__all__ = ["RecurrentPolicy"]


class PackedRecurrent(nn.Module):
    """`Recurrent` whose state is two tensors (1, B, hidden_size), as the rollout buffer of sb3-contrib stores it.

    The states of all layers are concatenated and split into two halves. For an LSTM of one layer these are h and c.
    """

    num_layers = 1

    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network = network
        self.input_size = network.input_size
        self.widths = [width for layer in range(network.num_layers) for width in network.widths_of(layer)]
        self.hidden_size = (sum(self.widths) + 1) // 2

    def unpack(self, packed: tuple[Tensor, Tensor]) -> NetworkState:
        """Return the state of the network."""
        parts = torch.cat([half[0] for half in packed], -1)[:, : sum(self.widths)].split(self.widths, -1)
        each = len(self.network.cell.states)
        return tuple(self.network.cell.state(parts[k : k + each]) for k in range(0, len(parts), each))

    def pack(self, state: NetworkState) -> tuple[Tensor, Tensor]:
        """Return a state of the network as two halves."""
        flat = torch.cat([part for layer in state for part in layer], -1)
        flat = nn.functional.pad(flat, (0, 2 * self.hidden_size - flat.shape[-1]))
        first, second = flat[None].chunk(2, -1)
        return first.contiguous(), second.contiguous()

    def forward(self, x: Tensor, packed: tuple[Tensor, Tensor], starts: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return outputs (B, T, ·) and the packed state. A new episode begins where starts (B, T) is true."""
        state = self.unpack(packed)
        if bool(starts[:, 0].any()):
            state = restart(self.network, x[:, 0], state, starts[:, 0])
        if x.shape[1] == 1 and not torch.is_grad_enabled():
            output, after = self.network.step(x[:, 0], state)
            return output[:, None], self.pack(after)
        # Sequences of the rollout buffer start with an episode, and seldom does another start inside.
        inside = bool(starts[:, 1:].any())
        found = self.network(x, state, reset=starts if inside else None)
        return found.outputs, self.pack(found.state)


class RecurrentPolicy(_Base):
    """Actor-critic policy of sb3-contrib with a cell of recur for the actor and for the critic.

    cell             a Cell, its name, or file.py:Class
    lstm_hidden_size, n_lstm_layers   size and number of layers, under the names of sb3-contrib
    shared_lstm, enable_critic_lstm   as in sb3-contrib
    lstm_kwargs      further arguments of `Recurrent`, such as {"init": "orthogonal"}

    All other arguments are those of `ActorCriticPolicy`. `CnnExtractor`s and the like are passed as
    `features_extractor_class`.
    """

    def __init__(
        self,
        *args: Any,
        cell: CellLike = "lstm",
        lstm_hidden_size: int = 256,
        n_lstm_layers: int = 1,
        shared_lstm: bool = False,
        enable_critic_lstm: bool = True,
        lstm_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if shared_lstm and enable_critic_lstm:
            raise OptionError("shared_lstm=True needs enable_critic_lstm=False")
        self._recurrent: dict[str, Any] = {
            "cell": cell,
            "lstm_hidden_size": lstm_hidden_size,
            "n_lstm_layers": n_lstm_layers,
            "shared_lstm": shared_lstm,
            "enable_critic_lstm": enable_critic_lstm,
            "lstm_kwargs": dict(lstm_kwargs or {}),
        }
        # The parent builds torch's LSTM, which is replaced below: the smallest one.
        super().__init__(*args, lstm_hidden_size=1, shared_lstm=shared_lstm, enable_critic_lstm=False, **kwargs)
        self.enable_critic_lstm = enable_critic_lstm
        self.lstm_actor = self._make_network()
        self.lstm_critic = self._make_network() if enable_critic_lstm else None
        self.critic = None
        if not (shared_lstm or enable_critic_lstm):
            self.critic = nn.Linear(self.features_dim, self.lstm_output_dim)
        self.lstm_hidden_state_shape = (1, 1, self.lstm_actor.hidden_size)
        old: Any = vars(self)["optimizer"]
        rate = old.param_groups[0]["lr"]
        self.optimizer: Any = self.optimizer_class(self.parameters(), lr=rate, **self.optimizer_kwargs)

    def _make_network(self) -> PackedRecurrent:
        given = self._recurrent
        size, layers = given["lstm_hidden_size"], given["n_lstm_layers"]
        network = Recurrent(given["cell"], self.features_dim, size, num_layers=layers, **given["lstm_kwargs"])
        if network.direction != "forward":
            raise OptionError(f"a policy needs direction='forward', got {network.direction!r}")
        return PackedRecurrent(network)

    def _build_mlp_extractor(self) -> None:
        self.lstm_output_dim = self._make_network().network.output_size
        super()._build_mlp_extractor()

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self._recurrent}

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: Any
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = lstm_states[0].shape[1]
        outputs, state = lstm(
            features.reshape(rows, -1, lstm.input_size), lstm_states, episode_starts.reshape(rows, -1) > 0
        )
        return outputs.flatten(0, 1), state

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return actions and the next state. Without a state, an episode starts."""
        if state is None:  # sb3-contrib takes zeros, which are not the initial state of every cell
            _, vectorised = self.obs_to_tensor(observation)
            episode_start = np.ones(len(observation) if vectorised else 1, dtype=bool)
        found: tuple[np.ndarray, tuple[np.ndarray, ...] | None]
        found = super().predict(observation, state, episode_start, deterministic)
        return found

    def export(self, to: str, path: str | Path, **options: Any) -> ExportResult:
        """Write the actor: observations (B, D) and states to the parameters of the action distribution (logits of
        discrete actions, means of continuous ones) and the next states.

        to, options   as in `recur.export.export_step`
        """
        if type(self.features_extractor) is not _FlattenExtractor:
            raise OptionError("export needs FlattenExtractor: observations of numbers, Box(D,)")
        if not hasattr(self.observation_space, "shape") or type(self.observation_space).__name__ != "Box":
            raise OptionError(f"export needs observations Box(D,), got {self.observation_space}")
        head = nn.Sequential(self.mlp_extractor.policy_net, self.action_net)
        return export_step(self.lstm_actor.network, to, path, head=head, **options)
