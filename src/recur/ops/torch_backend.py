"""Backend `torch`: PyTorch's own recurrent layers (oneDNN on the CPU, cuDNN on a GPU), for the cells that they have.

These layers neither return nor change the gradient that is carried from step to step, so calls that need this are
refused. Truncation works: every window is one call, which starts from a detached state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from recur.cells import GRU, LSTM, Cell, Elman
from recur.compat import in_transform, keeps_graph, rnn_kernels
from recur.ops.call import FinalStates, ScanCall
from recur.ops.loop import differentiate_by_loop, replace_tensors, selected_gradients

Kernel: TypeAlias = Callable[..., tuple[Tensor, ...]]


def _kernel(cell: Cell) -> Kernel | None:
    # The exact type: a subclass may have another step.
    if type(cell) is LSTM:
        return rnn_kernels.lstm
    if type(cell) is GRU:
        return rnn_kernels.gru
    if type(cell) is Elman:
        return {"tanh": rnn_kernels.rnn_tanh, "relu": rnn_kernels.rnn_relu}.get(cell.activation)
    return None


def computes_in(dtype: torch.dtype) -> torch.dtype:
    return dtype


def unsupported_reason(call: ScanCall) -> str | None:
    if _kernel(call.cell) is None or ("weight_hr" in call.weights and type(call.cell) is not LSTM):
        return f"torch.nn has no {call.cell!r}"
    if in_transform():
        return "transforms of torch.func and forward-mode derivatives need each operation in PyTorch"
    if call.dtype == torch.float16 and call.x.device.type == "cpu":
        return "oneDNN has float16 layers for few processors"
    if call.trace.wanted:
        return "torch.nn does not show the gradient of each step, which trace=True asks for"
    if call.bptt.clip is not None:
        return "torch.nn cannot clip the carried gradient inside its backward pass"
    if call.mask is not None:
        return "torch.nn has no dropout on the recurrent state"
    if call.bptt.keep is not None or any(isinstance(xi, Tensor) or xi for xi in call.edges):
        return "torch.nn can cut the carried gradient at a step of all sequences, but not scale it or cut some"
    return None


Results: TypeAlias = tuple[Tensor, tuple[Tensor, ...]]


def run(call: ScanCall) -> Results:
    return run_with_double_backward(call, _run)


def run_with_double_backward(call: ScanCall, kernels: Callable[[ScanCall], Results]) -> Results:
    """Run kernels that have first derivatives only; second derivatives are those of the loop."""
    tensors = (call.data, *call.weights.values(), *(call.start or ()), *call.step_inputs)
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if not recorded or torch.compiler.is_compiling():
        return kernels(call)
    outputs, *final = _Once.apply(call, kernels, *tensors)
    return outputs, tuple(final)


class _Once(torch.autograd.Function):
    """The kernels with their own autograd graph, which has first derivatives only.

    A backward pass that is itself differentiated uses the loop instead.
    """

    @staticmethod
    def forward(
        ctx: Any, call: ScanCall, kernels: Callable[[ScanCall], Results], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors, ctx.needs_input_grad[2:], strict=True)]
        with torch.enable_grad():
            outputs, final = kernels(replace_tensors(call, list(call.weights), leaves))
        ctx.call, ctx.inner = call, (leaves, [outputs, *final])
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(result.detach() for result in (outputs, *final))

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted, call = ctx.needs_input_grad[2:], ctx.call
        if torch.is_grad_enabled():
            again = replace_tensors(call, list(call.weights), ctx.saved_tensors)
            return (
                None,
                None,
                *differentiate_by_loop(call, call.cell, again.weights, again.data, again.start, arriving, wanted),
            )
        leaves, results = ctx.inner
        found = selected_gradients(results, arriving, leaves, wanted, retain_graph=keeps_graph())
        return None, None, *(found or [None] * len(wanted))


def _run(call: ScanCall) -> tuple[Tensor, tuple[Tensor, ...]]:
    kernel = _kernel(call.cell)
    assert kernel is not None
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    weights = [call.weights[n] for n in names if n in call.weights]
    if call.data.is_cuda and "weight_hr" not in call.weights:
        weights = _in_one_piece(weights)
    cuts = [t for t, xi in enumerate(call.edges) if xi == 0]
    if not cuts:
        return _window(kernel, call.data, call.sizes, call.state, weights)

    edges = sorted({0, *cuts, len(call.sizes)})
    windows = [call.sizes[begin:end] for begin, end in itertools.pairwise(edges)]
    pieces = call.data.split([sum(sizes) for sizes in windows])
    state: Sequence[Tensor] = call.state
    finals = FinalStates()
    outputs = []
    for begin, sizes, data in zip(edges, windows, pieces, strict=False):
        state = finals.end(state, still=sizes[0])
        if begin in cuts:
            state = [part.detach() for part in state]
        out, state = _window(kernel, data, sizes, state, weights)
        outputs.append(out)
    return torch.cat(outputs), finals.all(state)


def _in_one_piece(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights as views of one buffer, in the layout of cuDNN.

    Otherwise cuDNN copies them at every call, with a warning. The buffer always has biases, zero for a cell without.
    """
    if len(weights) == 2:
        weights = [*weights, *weights[0].new_zeros(2, len(weights[0]))]
    buffer = torch.cat([weight.reshape(-1) for weight in weights])
    parts = buffer.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


def _window(
    kernel: Kernel, data: Tensor, sizes: list[int], state: Sequence[Tensor], weights: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Call a kernel once: one layer, one direction, no dropout."""
    initial = [part.contiguous().unsqueeze(0) for part in state]  # cuDNN takes no expanded state
    hidden = initial if kernel is rnn_kernels.lstm else initial[0]
    has_bias, train = len(weights) > 3, torch.is_grad_enabled()
    options = (weights, has_bias, 1, 0.0, train, False)
    if sizes[0] == sizes[-1]:
        time_major = data.view(len(sizes), sizes[0], -1)
        out, *final = kernel(time_major, hidden, *options, False)
        out = out.reshape(len(data), -1)
    else:
        out, *final = kernel(data, torch.tensor(sizes), hidden, *options)
    return out, tuple(part.squeeze(0) for part in final)
