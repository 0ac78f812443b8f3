"""PPO on a T-maze, which only a policy with memory solves.

python examples/t_maze.py                       a GRU, and a feed-forward policy for comparison
python examples/t_maze.py --cell lstm --length 20
python examples/t_maze.py --out policies        also t_maze.h (checked by its self-test) and t_maze.onnx (played)

The agent stands at the end of a corridor and sees, at the first step only, on which side the reward is. It must walk
`length` steps to the junction and turn to this side. All other observations are the same for both sides: without memory
half of the turns are wrong.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical

from recur.export import export_step
from recur.nn import Recurrent

State: TypeAlias = tuple[tuple[Tensor, ...], ...] | None

FORWARD, LEFT, RIGHT = range(3)


class TMaze:
    """Several T-mazes at once, after Bakker (2001). An episode ends at the junction, or after 2·length + 2 steps.

    observation   side of the reward at the first step (−1 left, 1 right), else 0; 1 in the corridor; 1 at the junction
    reward        1 for the right side, 0 for the other, −0.1 for a turn in the corridor
    """

    observations, actions = 3, 3

    def __init__(self, count: int, length: int, seed: int = 0) -> None:
        self.length, self.draw = length, np.random.default_rng(seed)
        self.place, self.steps = np.zeros(count, int), np.zeros(count, int)
        self.side = self.draw.choice([-1, 1], count)

    def observe(self) -> Tensor:
        cue, end = np.where(self.steps == 0, self.side, 0), self.place == self.length
        return torch.from_numpy(np.stack([cue, ~end, end], 1).astype(np.float32))

    def step(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return rewards and which episodes have ended; these mazes start again."""
        end, side = self.place == self.length, np.where(actions == LEFT, -1, 1)
        turned = end & (actions != FORWARD)
        reward = np.where(turned, np.where(side == self.side, 1.0, 0.0), -0.1 * (~end & (actions != FORWARD)))
        self.place += ~end & (actions == FORWARD)
        self.steps += 1
        done = turned | (self.steps >= 2 * self.length + 2)
        self.place[done] = self.steps[done] = 0
        self.side[done] = self.draw.choice([-1, 1], int(done.sum()))
        return reward.astype(np.float32), done


class Policy(nn.Module):
    """Actor and critic: a recurrent network and two heads. Without a cell, a feed-forward network and two heads."""

    def __init__(self, cell: str, hidden_size: int) -> None:
        super().__init__()
        D, H = TMaze.observations, hidden_size
        self.recurrent = Recurrent(cell, D, H) if cell else None
        self.feed_forward = nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh())
        width = self.recurrent.output_size if self.recurrent else H
        self.actor, self.critic = nn.Linear(width, TMaze.actions), nn.Linear(width, 1)

    def forward(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, T, actions) and values (B, T). An episode starts where starts (B, T) is true."""
        h = self.recurrent(x, state, reset=starts).outputs if self.recurrent else self.feed_forward(x)
        return self.actor(h), self.critic(h)[..., 0]

    @torch.no_grad()
    def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """Return logits (B, actions), values (B,) and the next state."""
        if self.recurrent is None:
            h = self.feed_forward(x)
        else:
            h, state = self.recurrent.step(x, state, reset=starts)
        return self.actor(h), self.critic(h)[..., 0], state


@dataclass
class Rollout:
    """T steps of B mazes: tensors (B, T), and the state before the first step."""

    x: Tensor
    actions: Tensor
    log_p: Tensor
    starts: Tensor
    advantages: Tensor
    returns: Tensor
    state: State


class PPO:
    """Proximal policy optimization (Schulman et al. 2017). Minibatches are whole rows: gradients cross time."""

    def __init__(self, policy: Policy, maze: TMaze, steps: int = 64, lr: float = 3e-3, seed: int = 0) -> None:
        self.policy, self.maze, self.steps = policy, maze, steps
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.starts = torch.ones(len(maze.side), dtype=torch.bool)
        self.state: State = None

    def collect(self, discount: float = 0.98, decay: float = 0.95) -> Rollout:
        """Run the mazes and estimate advantages by GAE with λ = `decay`."""
        begun, steps = self.state, []
        for _ in range(self.steps):
            x, starts = self.maze.observe(), self.starts
            logits, values, self.state = self.policy.step(x, self.state, starts)
            actions = torch.multinomial(logits.softmax(-1), 1, generator=self.generator)[:, 0]
            rewards, done = self.maze.step(actions.numpy())
            log_p = Categorical(logits=logits).log_prob(actions)
            self.starts = torch.from_numpy(done)
            steps.append((x, actions, log_p, starts, values, torch.from_numpy(rewards)))
        x, actions, log_p, starts, values, reward = (torch.stack(part, 1) for part in zip(*steps, strict=True))
        following, running = self.policy.step(self.maze.observe(), self.state, self.starts)[1], torch.zeros(len(x))
        advantages, ended = torch.empty_like(values), self.starts
        for t in reversed(range(self.steps)):
            error = reward[:, t] + discount * following * ~ended - values[:, t]
            advantages[:, t] = running = error + discount * decay * running * ~ended
            following, ended = values[:, t], starts[:, t]
        return Rollout(x, actions, log_p, starts, advantages, advantages + values, begun)

    def update(self, rollout: Rollout, epochs: int = 4, minibatches: int = 2, clip: float = 0.2) -> None:
        r = rollout
        advantages = (r.advantages - r.advantages.mean()) / (r.advantages.std() + 1e-8)
        for _ in range(epochs):
            for rows in torch.randperm(len(r.x), generator=self.generator).chunk(minibatches):
                state = r.state and tuple(tuple(part[rows] for part in layer) for layer in r.state)
                logits, values = self.policy(r.x[rows], state, r.starts[rows])
                choice = Categorical(logits=logits)
                ratio = (choice.log_prob(r.actions[rows]) - r.log_p[rows]).exp()
                gain = torch.min(ratio * advantages[rows], ratio.clamp(1 - clip, 1 + clip) * advantages[rows])
                value_loss = (values - r.returns[rows]).square().mean()
                loss = -gain.mean() + 0.5 * value_loss - 0.01 * choice.entropy().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()


Act: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Function from observations (B, D) and starts (B,) to logits (B, actions), which keeps its own state."""


def player(policy: Policy) -> Act:
    state: State = None

    def act(x: Tensor, starts: Tensor) -> Tensor:
        nonlocal state
        logits, _, state = policy.step(x, state, starts)
        return logits

    return act


def success(act: Act, length: int, count: int = 500, seed: int = 1) -> float:
    """Return the fraction of episodes that find the reward, with the likeliest actions."""
    maze, won, over = TMaze(count, length, seed), np.zeros(count, bool), np.zeros(count, bool)
    starts = torch.ones(count, dtype=torch.bool)
    for _ in range(2 * length + 2):
        rewards, done = maze.step(act(maze.observe(), starts).argmax(-1).numpy())
        won |= ~over & (rewards == 1)
        over |= done
        starts = torch.from_numpy(done)
    return float(won.mean())


def train(
    cell: str, length: int = 10, hidden_size: int = 32, updates: int = 150, mazes: int = 64, seed: int = 0
) -> tuple[Policy, int]:
    """Return a policy and the number of environment steps. Training ends early when all episodes succeed."""
    torch.manual_seed(seed)
    policy = Policy(cell, hidden_size)
    ppo = PPO(policy, TMaze(mazes, length, seed), seed=seed)
    for update in range(1, updates + 1):
        ppo.update(ppo.collect())
        if update % 10 == 0 and success(player(policy), length) == 1:
            break
    return policy, update * mazes * ppo.steps


def exported(policy: Policy, folder: Path, length: int) -> None:
    """Write the policy to C and ONNX; play the ONNX file."""
    import json

    import onnxruntime

    assert policy.recurrent is not None
    folder.mkdir(parents=True, exist_ok=True)
    for to, path in (("c", folder / "t_maze.h"), ("onnx", folder / "t_maze.onnx")):
        made = export_step(policy.recurrent, to, path, head=policy.actor)
        print(f"{path}: largest difference {made.difference or 0:.1e}; {made.use}")
    session = onnxruntime.InferenceSession(folder / "t_maze.onnx")
    about = session.get_modelmeta().custom_metadata_map
    start, carried = json.loads(about["start"]), json.loads(about["carried"])
    widths = {value.name: value.shape[-1] for value in session.get_inputs()}
    state: dict[str, NDArray[np.float32]] = {}

    def act(x: Tensor, starts: Tensor) -> Tensor:
        fresh = {name: np.full((len(x), widths[name]), start[name], np.float32) for name in start}
        given = {name: np.where(starts[:, None].numpy(), fresh[name], state.get(name, fresh[name])) for name in start}
        outputs = dict(
            zip([v.name for v in session.get_outputs()], session.run(None, {"x": x.numpy(), **given}), strict=True)
        )
        state.update({into: outputs[name] for name, into in carried.items()})
        return torch.from_numpy(outputs["output"])

    print(f"t_maze.onnx in ONNX Runtime: {success(act, length):.1%} of 500 episodes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cell", default="gru")
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for cell in (given.cell, ""):
        begun = time.perf_counter()
        policy, steps = train(cell, given.length, seed=given.seed)
        found = success(player(policy), given.length)
        name = cell or "feed-forward"
        print(f"{name}: {found:.1%} of 500 episodes, {steps:,} steps, {time.perf_counter() - begun:.0f} s", flush=True)
        if cell and given.out:
            exported(policy, given.out, given.length)


if __name__ == "__main__":
    main()
