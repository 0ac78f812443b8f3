"""Any pointwise cell on the GPU: its programs printed as CUDA C++, compiled at run time, and launched.

    printer.py     a program as a C++ function: the one thing that differs from cell to cell
    kernels/       what surrounds it, for any cell: the loop over steps, the products, the exchange of h
    source.py      a kernel's whole text: a prelude, the cell's functions, a body
    nvrtc.py       text → cubin, by the compiler that torch's own wheels carry
    driver.py      cubin → function, and its launch: clusters, cooperative grids, what fits
    cache.py       both, kept in memory and on disk
    device.py      what a GPU has, as far as a choice depends on it
    choice.py      which way carries h, and how a matrix is shared out
    stream.py      one step of many sessions, whose states stay on the GPU
    run.py         the two passes of a scan on tensors, by what was chosen

Nothing here needs a CUDA toolkit, and nothing of it is imported before a scan meets a tensor on a GPU.
"""
