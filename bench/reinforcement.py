"""RecurrentPPO of sb3-contrib with its own LSTM and with `recur.rl.RecurrentPolicy`, in turns, on one thread.

python -m bench.reinforcement          needs pip install 'recur[rl]'

forward    one step of 8 environments, without gradients
update     loss and gradients of 8 sequences of 128 steps, without and with episodes that start inside them
learn      RecurrentPPO on CartPole: 2,048 environment steps with updates
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

ROWS, STEPS, SIZE = 8, 128, 64


def policies(cell: str = "lstm") -> dict[str, Any]:
    """Return agents with the two policies; for an LSTM, of equal weights."""
    from sb3_contrib import RecurrentPPO

    from recur.rl import RecurrentPolicy

    shared: dict[str, Any] = {"n_steps": 128, "batch_size": 128, "n_epochs": 4, "seed": 0, "device": "cpu"}
    size = {"lstm_hidden_size": SIZE}
    theirs = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs=size, **shared)
    ours = RecurrentPPO(RecurrentPolicy, "CartPole-v1", policy_kwargs={"cell": cell, **size}, **shared)
    if cell == "lstm":
        copy_weights(theirs.policy, ours.policy)
    return {"sb3-contrib": theirs, "recur": ours}


def copy_weights(theirs: Any, ours: Any) -> None:
    """Copy the weights of a policy of sb3-contrib with an LSTM."""
    weights = theirs.state_dict()
    ours.load_state_dict({key: weights[key.replace(".network", "")] for key in ours.state_dict()})


def batch(every: int, steps: int = STEPS) -> tuple[Any, ...]:
    """Return observations, actions, states and episode starts; an episode starts every so many steps, 0 for never."""
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS * steps, 4, generator=draw)
    actions = torch.randint(2, (ROWS * steps,), generator=draw)
    halves = [torch.randn(1, ROWS, SIZE, generator=draw) for _ in range(4)]
    starts = torch.zeros(ROWS, steps)
    for row in range(ROWS if every else 0):
        starts[row, row::every] = 1
    return x, actions, RNNStates((halves[0], halves[1]), (halves[2], halves[3])), starts.flatten()


def forward(policy: Any) -> Callable[[], None]:
    x, _, states, starts = batch(0, steps=1)

    def run() -> None:
        with torch.no_grad():
            for _ in range(50):
                policy.forward(x, states, starts)

    return run


def update(policy: Any, every: int) -> Callable[[], None]:
    given = batch(every)

    def run() -> None:
        policy.optimizer.zero_grad()
        values, log_p, entropy = policy.evaluate_actions(*given)
        (values.square().mean() - log_p.mean() - entropy.mean()).backward()

    return run


def ratios(sides: dict[str, Callable[[], object]], rounds: int) -> tuple[float, float, float]:
    """Return the minimum milliseconds of both sides, and the median over rounds of theirs / ours."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for k in range(rounds):
        for name in sorted(sides, reverse=bool(k % 2)):
            begun = time.perf_counter()
            sides[name]()
            times[name].append(1000 * (time.perf_counter() - begun))
    theirs, ours = times["sb3-contrib"], times["recur"]
    return min(theirs), min(ours), statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cell", default="lstm")
    parser.add_argument("--rounds", type=int, default=31)
    given = parser.parse_args()
    torch.set_num_threads(1)
    agents = policies(given.cell)
    cases: dict[str, Callable[[Any], Callable[[], object]]] = {
        "forward, 50 steps": lambda agent: forward(agent.policy),
        "update, no start inside": lambda agent: update(agent.policy, 0),
        "update, a start in 32 steps": lambda agent: update(agent.policy, 32),
        "learn, 2,048 steps": lambda agent: lambda: agent.learn(2048),
    }
    print(f"{given.cell}, {SIZE} units: milliseconds (minimum) and the median of the ratios")
    for name, make in cases.items():
        rounds = given.rounds if not name.startswith("learn") else max(3, given.rounds // 6)
        theirs, ours, ratio = ratios({side: make(agent) for side, agent in agents.items()}, rounds)
        print(f"{name:30} sb3-contrib {theirs:8.1f}   recur {ours:8.1f}   {ratio:.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
