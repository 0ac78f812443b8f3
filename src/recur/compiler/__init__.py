"""The compiler of steps: a cell's step is traced once, differentiated, and assembled into a short program.

    formulas.py      PyTorch's pointwise functions by name: what a step may be written in
    step.py          trace → expressions, compared with the step itself
    expressions.py   values made of values, each written once
    affine.py        steps that are affine in their states: what can run along time in pieces
    ranges.py        between which numbers a value lies
    derivative.py    ∂L/∂leaf of every leaf, as expressions
    assembly.py      a cell's three programs, and what is saved for the backward pass
    writer.py        expressions → instructions and places

What runs a program or prints it (the C++ core's interpreter today) reads an `Assembly` and nothing else.
"""
