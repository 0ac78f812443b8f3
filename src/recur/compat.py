"""Private names of PyTorch that recur uses, in one place: a new version of PyTorch is checked here.

Each entry says what PyTorch has no public name for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import _VF, Tensor, nn
from torch._C import _functorch
from torch._C._dynamo import eval_frame as _eval_frame
from torch.autograd import forward_ad
from torch.utils import _pytree

F = TypeVar("F", bound=Callable[..., Any])

# Kernels of torch.nn's recurrent layers, without the module around them.
rnn_kernels = _VF

# Dispatch below autograd: the implementation of an operator calls the operator again.
below_autograd = torch._C._AutoDispatchBelowAutograd
# The identifier of the backward pass that is running; −1 outside one.
backward_pass_id = torch._C._current_graph_task_id
# Whether the running backward pass keeps its graph, so that saved tensors may be needed again.
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
# Whether a tensor is a wrapper of a torch.func transform.
is_wrapped = _functorch.is_functorch_wrapped_tensor
# Whether a torch.func transform is active: vmap, grad, jvp, …
transforms_active = torch._C._are_functorch_transforms_active

tree_map = _pytree.tree_map
register_pytree_node = _pytree.register_pytree_node


def register_namedtuple(cls: type[tuple[Any, ...]], name: str) -> None:
    """Register a named tuple under a name, so that torch.export can save and load it."""
    _pytree._register_namedtuple(cls, serialized_type_name=name)


def constant_when_compiled(function: F) -> F:
    """Mark a function that torch.compile calls once, when it compiles, and whose result it treats as a constant.

    torch.compiler.assume_constant_result does the same, but imports the whole compiler.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


def skip_when_compiling(function: F) -> F:
    """Have torch.compile run a function and all that it calls in Python, where it is not part of a graph already.

    torch.compiler.disable does the same, but imports the whole compiler, and refuses to be part of a graph.
    """
    skip = _eval_frame._FrameExecStrategy(_eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.SKIP)
    _eval_frame.set_code_exec_strategy(function.__code__, skip)
    return function


@constant_when_compiled
def in_transform() -> bool:
    """Return True inside a torch.func transform or a forward-mode derivative, where tensors may have no memory."""
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def in_forward_mode() -> bool:
    """Return True while a forward-mode derivative is computed."""
    return forward_ad._current_level >= 0


def is_eager(x: Tensor) -> bool:
    """Return True if no compiler, tensor subclass or dispatch mode has to see the operators called with x."""
    plain = type(x) is Tensor or type(x) is nn.Parameter
    compiling = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return plain and not compiling and not torch._C._len_torch_dispatch_stack()


def is_jit_tracing() -> bool:
    """Return True inside torch.jit.trace."""
    return torch._C._get_tracing_state() is not None


def records_for_others() -> bool:
    """Return True while torch.jit.trace or torch.onnx.export records a graph for programs that do not have recur."""
    if is_jit_tracing():
        return True
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def outside_transforms() -> contextlib.AbstractContextManager[object]:
    """Suspend active torch.func transforms: tensors that are created inside are plain ones, shared by all samples."""
    return torch._C._DisableFuncTorch() if in_transform() else contextlib.nullcontext()


def unwrap(value: Tensor) -> Tensor | None:
    """Return a tensor without the wrappers of active transforms; None if vmap maps over it."""
    while _functorch.is_functorch_wrapped_tensor(value):
        if _functorch.is_batchedtensor(value):
            return None
        value = _functorch.get_unwrapped(value)
    return value


def transform_stack() -> list[str]:
    """Return the active transforms, outermost first: Vmap, Grad, Jvp, …"""
    if forward_ad._current_level >= 0:
        return ["Jvp"]
    return [level.key().name for level in _functorch.get_interpreter_stack() or ()]


def bottom_of(value: Tensor) -> Tensor:
    """Return the tensor below all wrappers of transforms, with the dimensions that vmap maps over."""
    while _functorch.is_functorch_wrapped_tensor(value):
        value = _functorch.get_unwrapped(value)
    return value


def is_batched(value: Tensor) -> bool:
    """Return True if a vmap maps over a tensor."""
    return unwrap(value) is None


def graph_break(reason: str) -> None:
    """Have torch.compile end its graph here and run what follows in Python."""
    torch._dynamo.graph_break(msg=reason)


def plain_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `apply` of an autograd function without the preparation for torch.func transforms, which is slower."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def library_file() -> str:
    """Return the path of the shared library that PyTorch is loaded from."""
    return str(torch._C.__file__)


def current_raw_stream(device: int) -> int:
    """Return the handle of the stream that PyTorch launches on now, without creating a torch.cuda.Stream."""
    stream: int = torch._C._cuda_getCurrentRawStream(device)
    return stream


def float32_precision(backend: str) -> str:
    """Return how float32 products are computed on the GPU by "matmul" or "rnn": "ieee", "tf32" or "none" (default).

    The public attribute raises an error when an older switch was set before; this function does not.
    """
    return str(torch._C._get_fp32_precision_getter("cuda", backend))


def set_float32_precision(backend: str, precision: str) -> None:
    torch._C._set_fp32_precision_setter("cuda", backend, precision)


# Functions on nested tuples of tensors; other leaves (None) stay as they are.
tree_map_only = _pytree.tree_map_only
tree_leaves = _pytree.tree_leaves

# In-place linear interpolation of a list of tensors, in one call.
foreach_lerp_ = torch._foreach_lerp_


def has_bfloat16_instructions() -> bool:
    """Return True if the CPU multiplies bfloat16 in hardware; without it, bfloat16 is slower than float32."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # not in every build
    return bool(supported is not None and supported())


def allow_uncaptured_steps(optimizer: torch.optim.Optimizer) -> None:
    """Silence the warning of a capturable optimizer that also takes steps outside of a CUDA graph."""
    vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True
