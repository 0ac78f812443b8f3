"""Scans of any pointwise cell on the GPU: generated CUDA C++, compiled at run time with NVRTC.

    codegen.py      a cell's program as a C++ function, the kernels around it, and their arguments
    kernels/        CUDA sources that are the same for every cell: loop over steps, matmuls, exchange of h
    nvrtc.py        source → cubin, with a cache in memory and on disk
    driver.py       the CUDA driver through ctypes: load a cubin, query what fits, launch
    blas.py         matmuls by cuBLASLt

    dispatch.py     entry point: choose a kernel, run the forward or backward pass of a scan
    layout.py       memory layout of a scan: operands, results, gradients
    passes.py       forward pass, backward pass and weight gradients, prepared once per call signature
    launches.py     lists of launches that the C++ core makes in one call; scratch memory; cache of CUDA graphs
    persistent.py   all steps in one launch: by teams of CTAs that keep W on the chip, or element-wise
    per_step.py     one launch per step: runs every cell, and is what the others are tested against
    streaming.py    one step for many sessions whose states stay on the GPU

    config.py       kernel configurations; heuristics.py, which one should be the fastest
    tuning.py       tables of measured times (tables/)
    report.py       measurement of kernels, and what works on this machine, for `recur doctor`

No CUDA library is loaded before a scan meets a tensor on a GPU.
"""
