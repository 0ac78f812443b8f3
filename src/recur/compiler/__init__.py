"""Compiler of steps: trace a cell's step once, differentiate it, and assemble both into short programs.

    formulas.py      PyTorch's pointwise functions as expressions
    tracing.py       torch.fx trace → expressions, compared with the step itself
    expressions.py   graph of pointwise expressions
    affine.py        steps that are affine in their states, which can run in parallel over time
    derivative.py    ∂L/∂leaf of every leaf, as expressions
    assembly.py      programs for inference, training and the backward pass
    equations.py     readable equations of a step and of its derivative

Backends and exporters read an `Assembly` and nothing else.
"""
