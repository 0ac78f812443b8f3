"""Graph of a bare `Recurrent` with modules before and after it, such as a policy of reinforcement learning.

step(x (B, D), state…) → output (B, K), state…
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recur.errors import OptionError, ShapeError
from recur.export.graphs import NetworkStates, PortableModel, TensorSpec, capture, flatten_state, prepare_model
from recur.nn import Recurrent


class NetworkStep(nn.Module):
    """One step of encoder, recurrent network and head."""

    def __init__(self, network: Recurrent, head: nn.Module | None, encoder: nn.Module | None) -> None:
        super().__init__()
        self.network = network
        self.head, self.encoder = head or nn.Identity(), encoder or nn.Identity()

    def forward(self, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        found = self.network(self.encoder(x)[:, None], NetworkStates(self.network).nested(given))
        return self.head(found.outputs[:, 0]), *flatten_state(found.state)


def build_network_step(
    network: Recurrent, head: nn.Module | None, encoder: nn.Module | None, input_size: int | None, name: str
) -> PortableModel:
    """Return the step of a network as a portable model."""
    if network.direction != "forward":
        raise OptionError(f"export_step needs direction='forward', this network has {network.direction!r}")
    if encoder is not None and input_size is None:
        raise OptionError("export_step needs input_size, the width of the inputs of the encoder")
    module = prepare_model(NetworkStep(network, head, encoder))
    assert isinstance(module, NetworkStep)
    D, states = input_size or network.input_size, NetworkStates(network)
    with torch.no_grad():
        begun = [part[None] for part in states.start().values()]
        output = module(torch.zeros(1, D), *(part.to("cpu", torch.float32) for part in begun))[0]
    if output.dim() != 2:
        raise ShapeError(f"the head must return (B, K), got {tuple(output.shape)}")
    inputs = [TensorSpec("x", ("B", D)), *states.values]
    outputs = [TensorSpec("output", ("B", int(output.shape[1]))), *states.values]
    return PortableModel(
        task="step",
        kind="network",
        name=name,
        graphs={"step": capture("step", module, inputs, outputs)},
        start=states.start(),
        network=module.network,
        facts={
            "cell": network.cell.name or type(network.cell).__name__,
            "input": str(D),
            "output": str(output.shape[1]),
        },
    )
