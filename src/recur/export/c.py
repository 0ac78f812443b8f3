"""`recur export RUN --to c model.h`: a trained model as one header of C99 that needs nothing and allocates nothing.

    #include "model.h"

    static model_work work;         memory that calls work in: one for each thread
    model_state state;              where a model that goes step by step has come to: one for each sequence

Tables, weights and functions are static and begin with the model's name, so that several headers live in one program.
Compiled with -DRECUR_SELFTEST it is a program of its own, which compares its graphs with vectors from Python.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from recur.errors import OptionError, RecurError
from recur.export import Options, Written
from recur.export.c_core import Core, core, head, named, self_test, struct_of
from recur.export.c_drivers import Driver
from recur.export.graphs import Portable
from recur.files import write_atomically

TAKES = {"quantize", "longest", "name"}

COMPILERS = ("cc", "gcc", "clang")
"""What the self-test is compiled with, if one is here."""

MOST = 1 << 20
"""Steps that a call may be laid out for: its places are counted in 32 bits."""

KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main
    class new delete this namespace template operator private public protected virtual bool true false""".split()  # noqa: SIM905
)
"""Of C and C++, and main: no names for a model."""


def write(portable: Portable, path: Path, options: Options) -> Written:
    """The header, compiled and compared where there is a compiler, and then kept."""
    prefix = check_name(options.name)
    if not 1 <= options.longest <= MOST:
        raise OptionError(f"--longest must be a whole number, 1 to {MOST:,}, got {options.longest}")
    made, text = header(portable, prefix, options.longest, bool(options.quantize))
    difference = tested(text)
    data = text.encode()
    write_atomically(path, data)
    floats = "8-bit" if options.quantize else "float32"
    holds = f"{portable.task}: {made.weight_bytes:,} bytes of {floats} weights and tables, {len(data):,} of text"
    missing = ("no C compiler is here, so the self-test was not run: cc -DRECUR_SELFTEST -x c FILE -lm",)
    notes = (*portable.notes, *(missing if difference is None else ()))
    return Written((path,), len(data), difference, holds, made.use, notes)


def check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", name) or name in KEYWORDS:
        raise OptionError(f"--name must be a name in C, of letters, digits and _, got {name!r}")
    return name


class Made(Core):
    """A core with how its interface is called."""

    use: str = ""


def header(portable: Portable, prefix: str, longest: int, quantize: bool = False) -> tuple[Made, str]:
    """The text of a header, and what it is made of."""
    least = max((graph.least.get("T", 1) for graph in portable.graphs.values()), default=1)
    if longest < least:
        raise OptionError(f"--longest must be at least {least} for this model, got {longest}")
    if portable.kind == "language":  # texts are read step by step, in constant memory
        portable = replace(portable, graphs={"step": portable.graphs["step"]})
    found = core(portable, prefix, longest, quantize)
    made = Made(**vars(found))
    driver = Driver(portable, made, longest)
    driver.write()
    made.use = f"{driver.use};"
    state = [f"typedef struct {{\n{_members(driver.state)}\n}} @_state;"] if driver.state else []
    defines = [f"#define @@_{name} {value}" for name, value in driver.defines.items()]
    parts = [
        _about(portable, prefix, driver.use, quantize),
        "#ifndef @@_H\n#define @@_H",
        head(prefix),
        "\n".join(defines),
        *state,
        struct_of(made, driver.work),
        made.text,
        *driver.texts.text(),
        *driver.parts,
        self_test(made, portable.graphs, quantize, bool(portable.settings.get("positive"))),
        "#endif",
    ]
    text = named("\n\n".join(part.rstrip() for part in parts), prefix) + "\n"
    # What a program does not call is no reason for a warning.
    return made, re.sub(r"^static (?=(?:const )?\w+ \*?\w+\()", f"{prefix.upper()}_API ", text, flags=re.MULTILINE)


def _members(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _about(portable: Portable, prefix: str, use: str, quantize: bool) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in portable.facts.items() if name != "run")

    def clean(text: str) -> str:
        """What a comment may hold; a label or a name of a file may have anything in it."""
        return re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /").replace("@", "(at)").replace("\\", "/")

    weights = "8 bits, with a scale for each row" if quantize else "float32"
    lines = [
        f"A trained model, written by recur: {clean(facts)}.",
        f"Weights are in {weights}. Nothing is needed but a C99 compiler and its math library, nothing is allocated.",
        "",
        f"    static {prefix}_work work;",
        f"    {clean(use)};",
        "",
        f"Test it: cc -O3 -DRECUR_SELFTEST -x c {prefix}.h -lm && ./a.out",
    ]
    return "/* " + "\n   ".join(lines) + " */"


def tested(text: str) -> float | None:
    """How far off the header's own self-test is; None without a compiler. Refused where it fails."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="recur-") as folder:
        source, program = Path(folder) / "model.h", Path(folder) / "test"
        source.write_text(text, encoding="utf-8")
        command = [compiler, "-std=c99", "-O1", "-DRECUR_SELFTEST", "-x", "c", str(source), "-o", str(program), "-lm"]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            lines = built.stderr.strip().splitlines() or ["it says nothing"]
            said = next((line for line in lines if "error" in line), lines[-1]).removeprefix(f"{source}:")
            raise RecurError(f"{compiler} does not compile the header: {said}; no file is kept")
        ran = subprocess.run([str(program)], capture_output=True, text=True)
    found = re.search(r"difference (\S+)", ran.stdout)
    if ran.returncode or found is None:
        raise RecurError(f"the header's self-test fails: {ran.stdout.strip() or ran.returncode}; no file is kept")
    return float(found[1])
