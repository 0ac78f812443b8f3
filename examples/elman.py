"""Train an Elman network to spell a sentence, then look at how far back its gradient reaches.

python examples/elman.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from recur import Recurrent

TEXT = "a recurrent network reads one symbol at a time and remembers what it read. "


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    symbols = sorted(set(TEXT))
    ids = torch.tensor([[symbols.index(c) for c in TEXT]])
    x, y = one_hot(ids[:, :-1], len(symbols)).float(), ids[:, 1:]  # "machin" in, "achine" out

    network = Recurrent("elman", len(symbols), 64)
    readout = nn.Linear(64, len(symbols))
    weights = [*network.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(weights, lr=0.01)

    for step in range(161):
        logits = readout(network(x).outputs)
        loss = cross_entropy(logits[0], y[0])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        if step in (0, 10, 20, 40, 80, 160):
            print(f"step {step:3d}   loss {loss.item():7.4f}   perplexity {loss.exp().item():6.2f}")

    # Free running: each predicted symbol is the next input, and the state is carried from call to call.
    spelled, state = TEXT[0], None
    while len(spelled) < len(TEXT):
        one = one_hot(torch.tensor([[symbols.index(spelled[-1])]]), len(symbols)).float()
        outputs, state, _ = network(one, state)
        spelled += symbols[int(readout(outputs)[0, -1].argmax())]
    print(f"\nit spells: {spelled}")

    # The gradient of the last symbol's loss, on its way back through time.
    outputs, _, (trace,) = network(x, trace=True)
    cross_entropy(readout(outputs)[0, -1], y[0, -1]).backward()
    print("\nits last symbol's gradient ‖∂L/∂h‖, k steps back in time (k = 0 is 1):")
    for k in (0, 5, 10, 20, 40, 70):
        size = (trace.total[-1 - k] / trace.total[-1]).item()
        print(f"  k = {k:2d}   {size:8.4f}  {'█' * round(30 * size)}")


if __name__ == "__main__":
    main()
