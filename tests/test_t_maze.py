"""The PPO example without gymnasium: the maze, the advantages, and a policy that is played in C and ONNX."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.t_maze import FORWARD, LEFT, PPO, RIGHT, Policy, TMaze, exported, player, success, train
from recur.export import export_step


def test_a_maze_rewards_the_side_that_was_shown() -> None:
    maze = TMaze(2, length=3)
    maze.side[:] = -1, 1
    assert maze.observe().tolist() == [[-1, 1, 0], [1, 1, 0]]
    assert maze.step(np.array([LEFT, FORWARD]))[0].tolist() == pytest.approx([-0.1, 0])
    assert maze.observe().tolist() == [[0, 1, 0], [0, 1, 0]]
    for _ in range(3):
        rewards, done = maze.step(np.array([FORWARD, FORWARD]))
        assert not rewards.any()
        assert not done.any()
    assert maze.observe().tolist() == [[0, 0, 1], [0, 0, 1]]
    rewards, done = maze.step(np.array([LEFT, LEFT]))
    assert rewards.tolist() == [1, 0]
    assert done.all()
    assert maze.observe()[:, 0].abs().tolist() == [1, 1]


def test_advantages_are_discounted_sums_of_errors_within_an_episode() -> None:
    torch.manual_seed(0)
    ppo = PPO(Policy("gru", 8), TMaze(4, 2), steps=20)
    ppo.collect()
    rollout = ppo.collect(discount=0.9, decay=1.0)
    first, second = 0, 0
    for row in range(4):
        starts = [t for t in range(20) if rollout.starts[row, t]]
        for t0, t1 in pairwise(starts):
            first += 1
            last = rollout.returns[row, t1 - 1]  # the reward of the last step alone: nothing follows it
            assert min(abs(float(last) - reward) for reward in (0, 1, -0.1)) < 1e-5
            for t in range(t0, t1 - 1):
                rest = float(rollout.returns[row, t] - 0.9 * rollout.returns[row, t + 1])
                second += 1
                assert min(abs(rest), abs(rest + 0.1)) < 1e-5
    assert first > 3
    assert second > 10


def test_an_update_reads_what_the_rollout_saw() -> None:
    """Episodes end inside the rows: with reset, the policy gives the log-probabilities of the rollout again."""
    torch.manual_seed(0)
    ppo = PPO(Policy("lstm", 8), TMaze(6, 3), steps=40)
    ppo.collect()
    rollout = ppo.collect()
    assert rollout.starts[:, 1:].sum() > 6
    logits, _ = ppo.policy(rollout.x, rollout.state, rollout.starts)
    log_p = torch.distributions.Categorical(logits=logits).log_prob(rollout.actions)
    torch.testing.assert_close(log_p, rollout.log_p, atol=1e-5, rtol=0)
    wrong, _ = ppo.policy(rollout.x, rollout.state, torch.zeros_like(rollout.starts))
    assert (wrong - logits).abs().max() > 1e-3


def test_a_policy_with_memory_solves_a_short_maze_and_a_feed_forward_policy_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, steps = train("gru", length=2, hidden_size=16, updates=40, mazes=32)
    assert success(player(policy), 2) == 1
    assert steps <= 40 * 32 * 64
    plain, _ = train("", length=2, hidden_size=16, updates=10, mazes=32)
    assert success(player(plain), 2) < 0.6
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    exported(policy, tmp_path, 2)
    assert "ONNX Runtime: 100.0%" in capsys.readouterr().out


@pytest.mark.parametrize("cell", ["lstm", "slstm"])
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_a_policy_in_c_has_the_logits_of_the_network(cell: str, tmp_path: Path) -> None:
    """Against a pass over the whole sequence with a reset, not against the graph that was exported."""
    torch.manual_seed(0)
    policy = Policy(cell, 8)
    assert policy.recurrent is not None
    export_step(policy.recurrent, "c", tmp_path / "policy.h", head=policy.actor, name="policy")
    (tmp_path / "calls.c").write_text(
        '#include "policy.h"\n'
        "void play(const float *x, const unsigned char *starts, int steps, float *logits) {\n"
        "    static policy_work work; policy_state state; policy_init(&state);\n"
        "    for (int t = 0; t < steps; ++t) {\n"
        "        if (starts[t]) policy_init(&state);\n"
        "        policy_step(&state, &work, x + t * POLICY_INPUTS, logits + t * POLICY_OUTPUTS);\n"
        "    }\n}\n"
    )
    command = [
        "gcc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-shared",
        "-fPIC",
        "calls.c",
        "-o",
        "calls.so",
    ]
    subprocess.run([*command, "-lm"], cwd=tmp_path, check=True)
    x, starts = torch.randn(1, 12, 3), torch.zeros(1, 12, dtype=torch.bool)
    starts[0, 7] = True
    logits = np.empty((12, 3), np.float32)
    flags = starts[0].numpy().astype(np.uint8)
    ctypes.CDLL(str(tmp_path / "calls.so")).play(
        x.numpy().ctypes.data_as(ctypes.c_void_p), flags.ctypes.data_as(ctypes.c_void_p), 12,
        logits.ctypes.data_as(ctypes.c_void_p),
    )  # fmt: skip
    with torch.no_grad():
        expected = policy(x, None, starts)[0][0]
    torch.testing.assert_close(torch.from_numpy(logits), expected, atol=1e-5, rtol=0)
    assert (expected[RIGHT] - expected[0]).abs().max() > 1e-4
