"""`recur.rl.RecurrentPolicy` against the policy of sb3-contrib with the same LSTM, and with other cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium")
pytest.importorskip("stable_baselines3")
RecurrentPPO = pytest.importorskip("sb3_contrib").RecurrentPPO

from bench.reinforcement import batch, copy_weights, policies  # noqa: E402
from recur.errors import OptionError  # noqa: E402
from recur.rl import RecurrentPolicy  # noqa: E402


def agent(cell: str, **options: Any) -> Any:
    given = {"cell": cell, "lstm_hidden_size": 8, **options}
    return RecurrentPPO(
        RecurrentPolicy, "CartPole-v1", n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu", policy_kwargs=given
    )


@pytest.mark.parametrize("every", [0, 32, 5])
def test_an_lstm_has_the_values_and_gradients_of_sb3_contrib(every: int) -> None:
    found = {}
    for name, one in policies().items():
        policy = one.policy
        values, log_p, entropy = policy.evaluate_actions(*batch(every))
        (values.square().mean() - log_p.mean() - entropy.mean()).backward()
        gradients = {key.replace(".network", ""): weight.grad for key, weight in policy.named_parameters()}
        found[name] = {"values": values, "log_p": log_p, **gradients}
    assert found["recur"].keys() == found["sb3-contrib"].keys()
    for key, value in found["recur"].items():
        torch.testing.assert_close(value, found["sb3-contrib"][key], atol=2e-5, rtol=1e-4, msg=key)


def test_training_with_an_lstm_is_that_of_sb3_contrib() -> None:
    """Equal weights, seeds and environments: the same actions, and nearly the same weights after an update."""
    both = policies()
    for one in both.values():
        one.n_epochs = 1
        one.set_random_seed(0)
        one.learn(128)
    theirs, ours = both["sb3-contrib"], both["recur"]
    assert np.array_equal(theirs.rollout_buffer.actions, ours.rollout_buffer.actions)
    moved = agent("lstm", lstm_hidden_size=64).policy
    copy_weights(theirs.policy, moved)
    for (key, a), (_, b) in zip(moved.state_dict().items(), ours.policy.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3, msg=key)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("gru", {"n_lstm_layers": 2, "shared_lstm": True, "enable_critic_lstm": False}),
        ("slstm", {}),
        ("lru", {"enable_critic_lstm": False}),
        ("mlstm", {}),
    ],
)
def test_other_cells_learn_and_are_saved(cell: str, options: dict[str, Any], tmp_path: Path) -> None:
    one = agent(cell, **options)
    before = {key: value.clone() for key, value in one.policy.state_dict().items()}
    one.learn(32)
    changed = {key for key, value in one.policy.state_dict().items() if not torch.equal(value, before[key])}
    assert any(key.startswith("lstm_actor") for key in changed)
    one.save(tmp_path / "agent.zip")
    again = RecurrentPPO.load(tmp_path / "agent.zip", device="cpu")
    one.policy.save(tmp_path / "policy.zip")
    alone = RecurrentPolicy.load(tmp_path / "policy.zip", device="cpu")
    x = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    states: list[Any] = [None, None, None]
    for observed in x:
        for k, player in enumerate((one, again, alone)):
            _, states[k] = player.predict(observed, states[k], deterministic=True)
        for state in states[1:]:
            np.testing.assert_array_equal(state[0], states[0][0])


def test_rollouts_are_repeated_by_an_update() -> None:
    """Values that one step at a time gave are those of the pass over sequences; sLSTM does not start at zero."""
    one = agent("slstm")
    one.learn(32)
    one.learn(32, reset_num_timesteps=False)
    buffer, seen = one.rollout_buffer, 0
    one.policy.set_training_mode(False)
    one.collect_rollouts(one.env, one._init_callback(None), buffer, 32)
    for part in buffer.get(32):
        values, log_p, _ = one.policy.evaluate_actions(
            part.observations, part.actions.long().flatten(), part.lstm_states, part.episode_starts
        )
        mask = part.mask > 0
        torch.testing.assert_close(values.flatten()[mask], part.old_values[mask], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(log_p[mask], part.old_log_prob[mask], atol=1e-5, rtol=1e-5)
        seen += int(mask.sum())
    assert seen == 32


def test_the_actor_is_exported(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    one = agent("gru")
    made = one.policy.export("onnx", tmp_path / "policy.onnx")
    assert made.difference is not None
    assert made.difference < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    x, h, state = np.random.default_rng(0).normal(size=(5, 1, 4)).astype(np.float32), np.zeros((1, 8), np.float32), None
    for observed in x:
        logits, h = session.run(None, {"x": observed, "h_0": h})
        action, state = one.predict(observed, state, deterministic=True)
        assert action[0] == logits[0].argmax()
        np.testing.assert_allclose(h[0], np.concatenate([half[0, 0] for half in state]), atol=1e-6)


def test_what_a_policy_refuses() -> None:
    with pytest.raises(OptionError, match="shared_lstm=True needs enable_critic_lstm=False"):
        agent("gru", shared_lstm=True)
    with pytest.raises(OptionError, match="direction='forward'"):
        agent("gru", lstm_kwargs={"direction": "both"})
