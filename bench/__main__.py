"""python -m bench: tables against the peers, and the same as JSON.

python -m bench                        the backends of scan beside PyTorch
python -m bench affine                 cells that are affine in their states: all of time at once beside step by step
python -m bench matrix                 matrix states: the chunkwise form beside the step form
python -m bench gpu                    one layer on a GPU beside cuDNN and FlashRNN, any cell
python -m bench gpu-training           training steps on a GPU beside cuDNN by hand, and each part of one
python -m bench memory                 cells × tasks of long memory: steps and seconds until solved
python -m bench truncation             ways to truncate: what they cost, and what is left of the gradient
python -m bench calls                  small calls: what Python and autograd cost beyond the arithmetic
python -m bench streaming              one token at a time beside torch.nn and ONNX Runtime
python -m bench serve                  sessions on a server, beside the same ones stepped one by one in PyTorch
python -m bench export                 exported models: C and ONNX Runtime a token at a time, a page's in node
python -m bench training               the trainer's overhead, what the backend gains, and sampling
python -m bench trees                  trees beside plain recursion, grids beside the double loop
python -m bench writing                encoder and decoder: training, decoding, output recurrence
python -m bench xray                   gradient flow, and a report
python -m bench studio                 the page: first view over 1,000 runs, a key to its bars in texts of any length
python -m bench diagnosis              planted faults: whether X-ray names the right one first, and its advice helps
python -m bench defaults               every task with nothing but its file, beside its recipe and something plain
python -m bench carry                  100 labelled examples: from nothing, and from a language model of the same texts
python -m bench bands                  bands of forecasts: how much they cover, fitted once and again with what comes
python -m bench sizing                 a training that sizes itself, beside a sweep of 30 trials
python -m bench overfitting            whether what is said to overfit does so on thousands of other examples
python -m bench speed                  what a training takes for its speed before it sizes itself, and its speed
python -m bench scaling                many GPUs on paper: bytes, overlap, where it stops paying; and two processes here
python -m bench.peers                  code written for torch.nn on recur.nn, unchanged: outputs and gradients compared
python -m bench counting TRAIN TEST    n-grams beside dictionaries, encoding, a corpus larger than memory should be
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path

from bench import (
    affine,
    bands,
    calls,
    carry,
    counting,
    defaults,
    diagnosis,
    export_page,
    export_step,
    gpu,
    gpu_training,
    matrix,
    memory,
    overfitting,
    scaling,
    scan,
    sizing,
    speed,
    streaming,
    training,
    trees_and_grids,
    truncation,
    writing,
)
from bench.datasets import DataSet
from bench.planted import PLANTS, VANISHING
from bench.side_by_side import Contest, compare, header, machine, report, row
from recur.ops import BACKENDS
from recur.tasks import task_names

RESULTS = Path("bench/results")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure recur beside its peers.")
    suites = parser.add_subparsers(dest="suite")
    for made in (parser, suites.add_parser("scan", help="the backends of scan beside PyTorch (the default)")):
        made.add_argument("--rounds", type=int, default=31, help="how often each side of a pair runs (31)")
        made.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts to time at (1 2)")
        made.add_argument("--match", default="", help="only rows whose name contains this")
        made.add_argument("--out", type=Path, default=RESULTS / "scan.json", help="where the JSON goes")
    at_once = suites.add_parser("affine", help="affine cells: all of time at once beside step by step")
    at_once.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    at_once.add_argument("--rounds", type=int, default=9, help="how often each runs (9)")
    at_once.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts to time at (1 2)")
    at_once.add_argument("--match", default="", help="only rows whose name contains this")
    at_once.add_argument("--out", type=Path, default=RESULTS / "affine.json", help="where the JSON goes")
    of_matrices = suites.add_parser("matrix", help="matrix states: the chunkwise form beside the step form")
    of_matrices.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    of_matrices.add_argument("--rounds", type=int, default=3, help="how often each side runs (3)")
    of_matrices.add_argument("--match", default="", help="only rows whose name contains this")
    of_matrices.add_argument("--out", type=Path, default=RESULTS / "matrix.json", help="where the JSON goes")
    on_gpu = suites.add_parser("gpu", help="one layer on a GPU beside cuDNN and FlashRNN")
    on_gpu.add_argument("--match", action="append", default=[], help="only rows whose name contains this; repeat it")
    on_gpu.add_argument("--shape", action="append", default=[], type=gpu.shape_of, help="B,T,H, in place of the grid's")
    on_gpu.add_argument("--backend", choices=(*BACKENDS, "auto"), default="cuda", help="which is timed (cuda)")
    on_gpu.add_argument(
        "--autograd-threads", action="store_true", help="backward passes on autograd's own thread, as torch has it"
    )
    on_gpu.add_argument("--compile-only", action="store_true", help="fill the cache of kernels, and time nothing")
    on_gpu.add_argument("--compiled", action="store_true", help="it was run with --compile-only before")
    on_gpu.add_argument("--rounds", type=int, default=31, help="how often each side runs at most (31)")
    on_gpu.add_argument(
        "--seconds", type=float, default=480, help="of all rows; fewer rounds where they are short (480)"
    )
    on_gpu.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="where the JSON goes")
    stepping = suites.add_parser("gpu-training", help="training steps of language models on a GPU")
    stepping.add_argument(
        "--case", action="append", default=[], choices=gpu_training.CASES, help="only this; repeat it"
    )
    stepping.add_argument("--precision", action="append", default=[], help="of products; repeat it (bfloat16)")
    stepping.add_argument("--out", type=Path, default=RESULTS / "gpu-training.json", help="where the JSON goes")
    remembering = suites.add_parser("memory", help="cells × tasks of long memory: steps and seconds until solved")
    remembering.add_argument("--cell", action="append", default=[], help="only this; repeat it")
    remembering.add_argument("--task", action="append", default=[], help="only those whose name contains this")
    remembering.add_argument("--minutes", type=float, default=5.0, help="of each run at most (5)")
    remembering.add_argument("--device", default="auto")
    remembering.add_argument("--points", type=Path, help="of examples/pixels.py")
    remembering.add_argument("--permuted", type=Path, help="the same with --permuted")
    remembering.add_argument("--out", type=Path, default=RESULTS / "memory.json", help="where the JSON goes")
    small = suites.add_parser("calls", help="small calls: what Python and autograd cost beyond the arithmetic")
    small.add_argument("--rounds", type=int, default=101, help="how often each runs, 10 calls at a time (101)")
    small.add_argument("--out", type=Path, default=RESULTS / "calls.json", help="where the JSON goes")
    many = suites.add_parser("scaling", help="many GPUs on paper, and two processes on this machine")
    many.add_argument("--tflops", type=float, default=19.0, help="what a GPU reaches, 10¹² operations a second (19)")
    many.add_argument("--lanes", type=int, default=64, help="lanes on each GPU (64)")
    many.add_argument("--batch-size", type=int, default=1024, help="lanes in all, for where it stops paying (1024)")
    many.add_argument("--measure", action="store_true", help="weak scaling of two processes, one thread each, too")
    many.add_argument("--rounds", type=int, default=3, help="of measuring (3)")
    many.add_argument("--steps", type=int, default=150, help="in each (150)")
    many.add_argument("--hidden-size", type=int, default=320, help="of the network that is measured (320)")
    many.add_argument("--out", type=Path, default=RESULTS / "scaling.json", help="where the JSON goes")
    sized = suites.add_parser("sizing", help="a training that sizes itself, beside a sweep")
    sized.add_argument("--set", choices=("fitted", "held-out"), default="held-out", help="which texts")
    sized.add_argument("--around", type=int, default=16, help="trials around the rule, of texts it is fitted on (16)")
    sized.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    sized.add_argument("--match", default="", help="only cases whose name contains this")
    sized.add_argument("--minutes", type=float, help="in place of each case's own")
    sized.add_argument("--cpu-clock", action="store_true", help="minutes of CPU time, for a machine that is busy")
    sized.add_argument("--jobs", type=int, default=1, help="processes, of one thread each (1)")
    sized.add_argument("--seconds", type=float, default=math.inf, help="begin no trial that would not end in them")
    sized.add_argument(
        "--out", type=Path, default=RESULTS / "sizing.json", help="where the JSON goes; gone on with where it is there"
    )
    turning = suites.add_parser("overfitting", help="whether what is said to overfit does so elsewhere")
    turning.add_argument("--set", choices=("setting", "held-out"), default="held-out", help="which sets")
    turning.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    turning.add_argument("--out", type=Path, default=RESULTS / "overfitting.json", help="where the JSON goes")
    asked = suites.add_parser("speed", help="what a training takes for its speed before it sizes itself, and its speed")
    asked.add_argument("--text", default="pydoc", help="to learn (pydoc)")
    asked.add_argument("--width", type=int, action="append", default=[], help="only this; repeat it")
    asked.add_argument("--lanes", type=int, default=64)
    asked.add_argument("--seconds", type=float, default=4.0, help="of each training (4)")
    asked.add_argument("--threads", type=int, default=1, help="on the CPU (1)")
    asked.add_argument("--device", default="auto")
    asked.add_argument("--out", type=Path, help="where the JSON goes; nowhere, if not given")
    counted = suites.add_parser("counting", help="n-grams, encoding and streaming")
    counted.add_argument("train", type=Path)
    counted.add_argument("test", type=Path)
    counted.add_argument("--rounds", type=int, default=3)
    counted.add_argument("--gigabytes", type=float, default=2.0, help="size of the synthetic corpus (2)")
    counted.add_argument("--out", type=Path, default=RESULTS / "counting.json")
    trained = suites.add_parser("training", help="what training costs outside the network; sampling")
    trained.add_argument("--out", type=Path, default=RESULTS / "training.json")
    shaped = suites.add_parser("trees", help="trees beside plain recursion, grids beside the double loop")
    shaped.add_argument("--rounds", type=int, default=7)
    shaped.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    shaped.add_argument("--match", default="", help="only rows whose name contains this")
    shaped.add_argument("--out", type=Path, default=RESULTS / "trees.json")
    written = suites.add_parser("writing", help="encoder and decoder: training, decoding, output recurrence")
    written.add_argument("--rounds", type=int, default=21, help="how often each side of a pair runs (21)")
    written.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts to time at (1 2)")
    written.add_argument("--out", type=Path, default=RESULTS / "writing.json")
    streamed = suites.add_parser("streaming", help="one token at a time")
    streamed.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    streamed.add_argument("--out", type=Path, default=RESULTS / "streaming.json")
    served = suites.add_parser("serve", help="sessions on a server")
    served.add_argument("--seconds", type=float, default=2.0, help="for each way and number of sessions (2)")
    served.add_argument("--sessions", type=int, nargs="+", default=[1, 10, 100, 1000, 10_000])
    served.add_argument("--out", type=Path, default=RESULTS / "serve.json")
    exported = suites.add_parser("export", help="exported models: C, ONNX Runtime, a page in node")
    exported.add_argument("--tokens", type=int, default=2000, help="that each side reads (2000)")
    exported.add_argument("--out", type=Path, default=RESULTS / "export.json")
    cut = suites.add_parser("truncation", help="what truncation costs, and what is left of the gradient")
    cut.add_argument("--cell", action="append", default=[], help="of which cells; repeat it (gru and lstm)")
    cut.add_argument("--rounds", type=int, default=7, help="how often each mode runs (7)")
    cut.add_argument("--steps", type=int, default=400, help="of training the model whose gradient is looked at (400)")
    cut.add_argument("--out", type=Path, default=RESULTS / "truncation.json")
    looked = suites.add_parser("xray", help="how long it takes to look into a model")
    looked.add_argument("--out", type=Path, default=RESULTS / "xray.json")
    paged = suites.add_parser("studio", help="the page: first view over many runs, a key to its bars")
    paged.add_argument("--runs", type=int, default=1000, help="in the folder (1000)")
    paged.add_argument(
        "--hidden-size", type=int, default=256, help="units of the model that is typed to, in 2 layers (256)"
    )
    paged.add_argument("--out", type=Path, default=RESULTS / "studio.json")
    planted = suites.add_parser("diagnosis", help="planted faults: whether X-ray names the right one first")
    planted.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    planted.add_argument("--set", choices=("setting", "held-out"), default="held-out", help="which texts and seeds")
    planted.add_argument("--seed", type=int, action="append", default=[], help="another seed; repeat it")
    planted.add_argument(
        "--fault", action="append", default=[], choices=(*PLANTS, VANISHING), help="only this; repeat it"
    )
    planted.add_argument("--advice", action="store_true", help="train what is advised too, and compare")
    planted.add_argument("--jobs", type=int, default=1, help="processes, of one thread each (1)")
    planted.add_argument("--folder", type=Path, help="keep the runs there, and take those that are there already")
    planted.add_argument("--seconds", type=float, default=math.inf, help="end after so many; what is done is kept")
    planted.add_argument("--resume", action="store_true", help="keep the rows that --out has, and make the others")
    planted.add_argument("--out", type=Path, default=RESULTS / "diagnosis.json")
    plain = suites.add_parser("defaults", help="every task with nothing but its file")
    plain.add_argument("--minutes", type=float, help="for every training, in place of the task's own; a quick look")
    plain.add_argument("--task", action="append", default=[], choices=task_names(), help="only this; repeat it")
    plain.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    plain.add_argument("--no-recipes", action="store_true", help="leave the recipes away, for half the time")
    plain.add_argument("--seeds", type=int, default=1, help="runs of each, whose mean is shown (1)")
    plain.add_argument(
        "--json", dest="out", type=Path, metavar="FILE", help="where the JSON goes; nowhere, if not given"
    )
    begun = suites.add_parser("carry", help="few labelled examples: from nothing, and from a language model")
    begun.add_argument("--set", action="append", default=[], choices=carry.SETS, help="only this; repeat it")
    begun.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    begun.add_argument("--part", choices=("valid", "test"), default="valid", help="what is measured on (valid)")
    begun.add_argument("--labelled", type=int, default=100, help="examples with labels; as many to choose by (100)")
    begun.add_argument("--seeds", type=int, default=3, help="draws and runs of each (3)")
    begun.add_argument("--threads", type=int, default=1)
    begun.add_argument("--device", default="cpu", help="of the language models (cpu)")
    begun.add_argument("--out", type=Path, default=RESULTS / "carry.json")
    covering = suites.add_parser("bands", help="how much bands of forecasts cover")
    covering.add_argument("--data", type=Path, default=defaults.DATA, help="the folder of data sets (../shared/data)")
    covering.add_argument("--out", type=Path, default=RESULTS / "bands.json")
    options = parser.parse_args()
    runs = {"counting": run_counting, "streaming": run_streaming, "training": run_training}
    runs |= {"bands": run_bands, "carry": run_carry, "trees": run_trees, "writing": run_writing, "xray": run_xray}
    runs |= {
        "defaults": run_defaults,
        "affine": run_affine,
        "matrix": run_matrix,
        "truncation": run_truncation,
        "calls": run_calls,
    }
    runs |= {"scaling": run_scaling, "gpu": run_gpu, "gpu-training": run_gpu_training, "serve": run_serve}
    runs |= {"sizing": run_sizing, "export": run_export, "memory": run_memory, "diagnosis": run_diagnosis}
    runs |= {"studio": run_studio, "speed": run_speed, "overfitting": run_overfitting}
    runs.get(options.suite, run_scan)(options)
    if options.out is not None:
        print(f"written to {options.out}")


def run_scan(options: argparse.Namespace) -> None:
    _compare(scan.contests(), options)


def run_sizing(options: argparse.Namespace) -> None:
    rows = sizing.read_rows(options.out)
    known, here = {(one["case"], one["kind"], one["seed"]) for one in rows}, machine()
    made = sizing.trials(options.set, options.around, options.match, options.minutes)
    todo = [trial for trial in made if trial.key not in known]
    running = sizing.measure(todo, list(rows), options.data, options.jobs, options.seconds, options.cpu_clock)
    for found in running:
        rows.append(found)
        print(found, flush=True)
        _write(options.out, {"machine": here, "rows": rows, "compared": sizing.compared(rows)})
    print("\n".join(sizing.table(sizing.compared(rows))))


def run_memory(options: argparse.Namespace) -> None:
    rows = []
    found = memory.tasks(options.points, options.permuted)
    for name, task in found.items():
        if options.task and not any(part in name for part in options.task):
            continue
        for cell in options.cell or memory.CELLS:
            rows.append(memory.measure(cell, name, task, options.minutes, options.device))
            print(rows[-1], flush=True)
    print("\n".join(memory.report(rows)))
    _write(options.out, {"machine": machine(), "rows": rows})


def run_gpu_training(options: argparse.Namespace) -> None:
    import torch

    rows = []
    for name in options.case or gpu_training.CASES:
        for precision in options.precision or ["bfloat16"]:
            rows.append(gpu_training.measure(name, precision))
            print("\n".join(gpu_training.report(rows[-1])), flush=True)
            torch.cuda.empty_cache()
    _write(options.out, {"machine": machine(), "gpu": torch.cuda.get_device_name(), "rows": rows})


def run_trees(options: argparse.Namespace) -> None:
    _compare(trees_and_grids.contests(), options)


def _compare(contests: Iterable[Contest], options: argparse.Namespace) -> None:
    results = []
    print(header())
    for contest in contests:
        for threads in options.threads if options.match in contest.what else []:
            results.append(compare(contest, threads, options.rounds))
            print(row(results[-1]), flush=True)
    for threads in options.threads:
        ratios = [
            r.ratio for r in results if r.threads == threads and " on native / nn." in r.what and "backw" in r.what
        ]
        if ratios:
            times = math.exp(-statistics.fmean(map(math.log, ratios)))
            print(f"native, forward + backward, {threads} threads: {times:.2f} times torch.nn's rate (geometric mean)")
    _write(options.out, report(results))


def run_matrix(options: argparse.Namespace) -> None:
    _write(options.out, matrix.measure(options.device, options.rounds, options.match))


def run_affine(options: argparse.Namespace) -> None:
    _write(options.out, affine.measure(options.device, options.threads, options.rounds, options.match))


def run_gpu(options: argparse.Namespace) -> None:
    if gpu.measure(options, lambda found: _write(options.out, found)):
        raise SystemExit(f"written to {options.out}")


def run_truncation(options: argparse.Namespace) -> None:
    _write(options.out, truncation.measure(options.cell or ["gru", "lstm"], options.rounds, options.steps))


def run_bands(options: argparse.Namespace) -> None:
    _write(options.out, {"machine": machine(), "rows": bands.measure(options)})


def run_carry(options: argparse.Namespace) -> None:
    _write(options.out, {"machine": machine(), "rows": carry.measure(options)})


def run_counting(options: argparse.Namespace) -> None:
    found = counting.kneser_ney(options.train, options.test, options.rounds)
    print(
        f"Kneser–Ney 5-gram, read to perplexity {found['perplexity']:.2f}: {found['seconds']['ours']:.2f} s, ", end=""
    )
    print(f"dictionaries {found['seconds']['dictionaries']:.2f} s: {found['ratio']:.1f} times as fast")
    kenlm = found["kenlm_seconds"]
    print("KenLM is not installed" if kenlm is None else f"KenLM, count and estimate only: {kenlm:.2f} s", flush=True)
    rates = counting.encoding(options.rounds)
    for kind, rate in rates.items():
        print(f"encoding, {kind}: {rate:.0f} MB/s", flush=True)
    streamed = [run_shards(options.gigabytes, processes) for processes in (1, 2)]
    _write(options.out, {"machine": machine(), "kneser_ney": found, "encoding_mb_s": rates, "streaming": streamed})


def run_shards(gigabytes: float, processes: int) -> dict[str, float]:
    found = counting.streaming(gigabytes, processes)
    many = f"{processes} process{'es' * (processes > 1)}"
    stages = {"look": "looked through", "count": "counted", "encode": "encoded", "read": "read"}
    times = [
        f"{said} in {found[f'{name}_s']:.0f} s ({found[f'{name}_cpu_s']:.0f} of CPU)" for name, said in stages.items()
    ]
    print(f"{gigabytes:.1f} GB, {found['tokens'] / 1e6:.0f} M words, {many}: {', '.join(times)}, ", end="")
    print(f"peak memory {found['peak_mib']:.0f} MiB", flush=True)
    return found


def run_overfitting(options: argparse.Namespace) -> None:
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows = []
    for found in overfitting.measure(options.set, options.data):
        rows.append(found)
        print(f"{found['case']:<28}{found['worse']:>+8.1%}   {'overfits' if found['rule'] else ''}", flush=True)
    print(overfitting.counted(rows))
    _write(options.out, {**kept, "machine": machine(), options.set: {**overfitting.counted(rows), "rows": rows}})


def run_speed(options: argparse.Namespace) -> None:
    found = speed.main(options)
    if options.out is not None:
        _write(options.out, {"machine": machine(), **found})


def run_scaling(options: argparse.Namespace) -> None:
    _write(options.out, {"machine": machine(), **scaling.main(options)})


def run_calls(options: argparse.Namespace) -> None:
    results = []
    print(f"{'B 1, one thread, microseconds':<44}{'ours':>8}{'core':>8}{'beyond':>8}{'torch.nn':>10}")
    for cell in calls.PEERS:
        rows = [(f"T {T}, H {H}, forward and back", calls.training(cell, T, H, options.rounds)) for T, H in calls.SIZES]
        rows += [(f"a step of a stream, H {H}", calls.streaming(cell, H, options.rounds)) for H in (8, 64)]
        for what, us in rows:
            results.append({"what": f"{cell}, {what}", "microseconds": us})
            times = f"{us['ours']:>8.1f}{us['core']:>8.1f}{us['ours'] - us['core']:>8.1f}{us['torch.nn']:>10.1f}"
            print(f"{cell + ', ' + what:<44}{times}", flush=True)
    print(f"{'cells, one thread, microseconds':<44}{'ours':>8}{'torch.nn':>10}{'ratio':>8}")
    cells = []
    for kind, (B, H) in itertools.product(calls.CELLS, calls.CELL_SIZES):
        for what, us in calls.one_step(kind, B, H, max(3, options.rounds * 32 // max(32, H))).items():
            cells.append({"what": f"{kind}, {what}", "B": B, "H": H, "microseconds": us})
            times = f"{us['ours']:>8.1f}{us['torch.nn']:>10.1f}{us['ours'] / us['torch.nn']:>8.2f}"
            print(f"{f'{kind}, H {H}, B {B}, {what}':<44}{times}", flush=True)
    print(f"{'gradients per sample, B 32, T 40, H 64':<44}{'ours':>8}{'batch':>10}{'ratio':>8}")
    samples = []
    for cell in (*calls.PEERS, "peephole"):
        us = calls.per_sample(cell, max(3, options.rounds // 10))
        samples.append({"what": f"{cell}, gradients per sample", "microseconds": us})
        ratio = us["per sample"] / us["batch"]
        print(f"{cell:<44}{us['per sample']:>8.0f}{us['batch']:>10.0f}{ratio:>8.2f}", flush=True)
    _write(options.out, {"machine": machine(), "results": results, "cells": cells, "per_sample": samples})


def run_streaming(options: argparse.Namespace) -> None:
    results = []
    for threads in options.threads:
        for hidden in (256, 512):
            found = streaming.streaming(hidden, threads)
            results.append({"hidden": hidden, "threads": threads, "microseconds": found})
            times = ", ".join(f"{name} {us:.0f}" for name, us in found.items())
            print(f"LSTM, H {hidden}, batch 1, {threads} threads, µs a token: {times}", flush=True)
    _write(options.out, {"machine": machine(), "results": results})


def run_serve(options: argparse.Namespace) -> None:
    from bench.serve import lines, serving  # needs an extra

    found = serving(options.seconds, tuple(options.sessions))
    print("\n".join(lines(found)))
    _write(options.out, {"machine": machine(), **found})


def run_export(options: argparse.Namespace) -> None:
    results = []
    for hidden in (256, 512):
        found = export_step.steps(hidden, options.tokens)
        results.append({"hidden": hidden, "microseconds": found})
        times = ", ".join(f"{name} {us:.1f}" for name, us in found.items())
        print(f"LSTM, H {hidden}, one core, µs a token: {times}", flush=True)
    page = export_page.measure()
    rates = ", ".join(f"{kind} {rate:,.0f}" for kind, rate in page["characters_a_second"].items())
    print(f"a page of the default model, {page['bytes']:,} bytes, characters a second: {rates}")
    if seen := page["in_chromium"]:
        print(f"in Chromium, drawing included: {statistics.median(seen):,.0f}")
    _write(options.out, {"machine": machine(), "steps": results, "page": page})


def run_training(options: argparse.Namespace) -> None:
    step = training.overhead()
    times = f"{step['trainer_ms']:.2f} ms, the network alone {step['bare_ms']:.2f} ms"
    print(f"a step, H 256: {times}: {step['ratio']:.3f} times")
    gains = {cell: training.backends(cell) for cell in ("gru", "lstm")}
    for cell, gain in gains.items():
        rates = f"{gain['native']:,.0f} tokens/s, on torch {gain['torch']:,.0f}"
        print(f"training at the default size on native, {cell}: {rates}: {gain['ratio']:.2f} times as fast")
    stream = training.sampling()
    rates = f"{stream['ours_per_s']:,.0f} tokens/s, by hand in PyTorch {stream['by_hand_per_s']:,.0f}"
    print(f"sampling, H 256: {rates}: {stream['ratio']:.2f} times as fast")
    _write(options.out, {"machine": machine(), "step": step, "backends": gains, "sampling": stream})


def run_writing(options: argparse.Namespace) -> None:
    results = []
    print(header())
    for contest in writing.contests():
        for threads in options.threads:
            results.append(compare(contest, threads, options.rounds))
            print(row(results[-1]), flush=True)
    _write(options.out, report(results))


def run_xray(options: argparse.Namespace) -> None:
    from bench import xray  # it needs the extras of the studio

    found = xray.measure()
    for name, value in found.items():
        print(f"{name}: {json.dumps(value)}")
    _write(options.out, {"machine": machine(), **found})


def run_studio(options: argparse.Namespace) -> None:
    from bench import studio  # it needs the extras of the studio

    found = studio.measure(options.runs, options.hidden_size)
    for name, value in found.items():
        print(f"{name}: {json.dumps(value)}")
    _write(options.out, {"machine": machine(), "hidden": options.hidden_size, **found})


def run_diagnosis(options: argparse.Namespace) -> None:
    rows = diagnosis.read_rows(options.out) if options.resume and options.out.exists() else []
    found = diagnosis.measure(
        options.data, options.set, options.jobs, options.seed, options.advice, options.folder,
        faults=options.fault, done=rows, seconds=options.seconds,
    )  # fmt: skip
    for row_found in found:
        rows.append(row_found)
        right = "  " if row_found["found"] == row_found["expected"] else "✗ "
        about = " ".join(str(row_found[name]) for name in ("fault", "text", "token", "seed"))
        print(f"{right}{about}: {row_found['found']}", flush=True)
        _write(options.out, {"machine": machine(), "set": options.set, "rows": rows})  # after every row
    print(diagnosis.confusion(rows))
    if options.advice:
        print(diagnosis.advice_table(rows))


def run_defaults(options: argparse.Namespace) -> None:
    found: list[object] = []
    skipped: list[str] = []
    print(defaults.HEADER)
    for made in defaults.rows(options.task, options.data, options.minutes, options.seeds, not options.no_recipes):
        if isinstance(made, DataSet):
            skipped.append(f"{made.task} {made.name}")
            print(f"{made.task:<12}{made.name:<20}skipped: {made.missing} is not there", flush=True)
        else:
            found.append(defaults.as_json(made))
            print(defaults.line(made), flush=True)
        if options.out is not None:  # after every row: all of them take an hour
            _write(options.out, {"machine": machine(), "seeds": options.seeds, "results": found, "skipped": skipped})


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
