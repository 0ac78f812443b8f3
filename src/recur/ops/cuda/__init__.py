"""Any pointwise cell on the GPU: its programs printed as CUDA C++, compiled at run time, and launched.

    printer.py     a program as a C++ function: the one thing that differs from cell to cell
    kernels/       what surrounds it, for any cell: the loop over steps, the products, the exchange of h
    source.py      a kernel's whole text: a prelude, the cell's functions, a body
    nvrtc.py       text → cubin, by the compiler that torch's own wheels carry
    driver.py      cubin → function, and its launch: clusters, cooperative grids, what fits
    cache.py       both, kept in memory and on disk
    device.py      what a GPU has, as far as a choice depends on it; missing.py, why it may have no kernels

    run.py         the two passes of a scan on tensors: the door
    forward_pass.py, backward_pass.py   a pass, prepared once for each form of call; after.py, the products behind it
    passes.py      what both have in common; launches.py, all launches of a pass in one call of the C++ core
    blas.py        those products; around.py, what else is launched around the steps; scratch.py, memory for both
    memory.py      how a scan lies in memory; operands.py and results.py, what goes into one step a launch and comes out
    persistent.py  all steps in one launch, by a team of CTAs that share W; way.py, how they do
    along.py       all steps in one launch of a cell without a product; plan.py, how it is shared out
    steps.py       one step a launch, for everything, and what the others are tested against
    stepping.py    all of them in one call of the core; replayed.py, as a graph where they come again
    choice.py      which way is taken; tuning.py and tables/, what was measured to be the fastest
    measuring.py   how long a layer takes, kernel_time.py its kernel alone; report.py, what works here: recur doctor
    stream.py      one step of many sessions, states by slot; stack.py and tiles.py, its layers and their shares

No library of CUDA's is loaded before a scan meets a tensor on a GPU.
"""
