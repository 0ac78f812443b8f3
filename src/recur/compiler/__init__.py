"""Compiler of steps: trace a cell's step once, differentiate it, and assemble both into short programs.

    formulas.py      PyTorch's pointwise functions as expressions
    tracing.py       torch.fx trace → expressions, compared with the step itself
    expressions.py   graph of pointwise expressions; ∂L/∂leaf of every leaf, as expressions
    affine.py        steps that are affine in their states, which can run in parallel over time
    assembly.py      programs for inference, training and the backward pass
    programs.py      program text of a cell, compiled once; operands and signature of a call
    equations.py     readable equations of a step and of its derivative

Backends and exporters read an `Assembly` and nothing else.
"""
