"""Headers of every kind under every compiler that is here: `python -m tests.export.compilers [--only tag,forecast]`.

Each model in float32 and in 8 bits: its self-test by gcc, clang, tcc, g++ and clang++ with all warnings as errors, and
by gcc and clang with sanitizers; then a program that calls its interface with texts and numbers that nobody should
give it, with sanitizers too.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from recur.export import to_portable
from recur.export.c_header import header
from recur.export.graphs import PortableModel
from tests.export import runs

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

COMPILERS = {
    "gcc": ["gcc", "-std=c99", "-O2", *WARNINGS, "-Wconversion", "-x", "c"],
    "clang": ["clang", "-std=c99", "-O2", *WARNINGS, "-x", "c"],
    "tcc": ["tcc", "-std=c99", "-Wall", "-Werror", "-x", "c"],
    "g++": ["g++", "-std=c++11", "-O1", *WARNINGS, "-x", "c++"],
    "clang++": ["clang++", "-std=c++11", "-O1", *WARNINGS, "-x", "c++"],
    "gcc, sanitized": ["gcc", "-std=c99", "-O1", *SANITIZED, "-x", "c"],
    "clang, sanitized": ["clang", "-std=c99", "-O1", *SANITIZED, "-x", "c"],
}


TEXTS = """
static char book[5000];
static const char *const texts[] = {
    "the cat sat on the mat", "", " ", "\\n", "Anna lives in Rome now", "abc", "x", "<unk> <eos>",
    "\\xff\\xfe\\x80", "\\xe6\\xbc", "\\xf0\\x9f", "\\xc0\\x80\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80",
    "\\xce\\xa3\\xce\\x91\\xce\\xa3 \\xc3\\x84 \\xe6\\xbc\\xa2\\xe5\\xad\\x97 1,000.5 \\xcc\\x81x",
    "\\t\\x0b\\x1c\\xe3\\x80\\x80\\xc2\\xa0", "antidisestablishmentarianismantidisestablishmentarianism", book};
enum { TEXTS = (int)(sizeof texts / sizeof *texts) };
static void fill(int spaced) {
    for (int k = 0; k + 1 < (int)sizeof book; ++k) book[k] = spaced && k % 3 == 2 ? ' ' : (char)('a' + k % 3);
}
static float floats[20000];
static double doubles[20000];
static int32_t ids[20000];
static char text[600];
static model_work work;
"""
"""What a program gives; the last text is longer than what is read, once without spaces and once with them."""

STEP = "model_state state; model_init(&state);\n"
TOKENS = "static const int32_t odd[] = {-1, 0, 5, 2147483647, -2147483647 - 1}; for (int k = 0; k < 5; ++k) "

CALLS = {
    "language": STEP + TOKENS + """model_step(&state, &work, odd[k], floats);
        for (int t = 0; t < TEXTS; ++t)
            for (int size = 0; size < 600; size = size * 4 + 1)
                model_predict(&state, &work, texts[t], text, size, 40, size % 2 ? 0.8f : 0.0f, (uint64_t)t);
        for (int k = 0; k < 20; ++k) {
            uint64_t seed = (uint64_t)k;
            model_step(&state, &work, k, floats);
            model_choose(floats, 0.5f, k % 4, 1.0f - 0.05f * (float)k, &seed);
        }""",
    "writer": """for (int t = 0; t < TEXTS; ++t)
            for (int size = 0; size < 600; size = size * 4 + 1)
                model_predict(&work, texts[t], text, size, size % 2 ? 0.8f : 0.0f, (uint64_t)t);""",
    "text": "for (int t = 0; t < TEXTS; ++t) model_predict(&work, texts[t], floats);",
    "words": """for (int t = 0; t < TEXTS; ++t)
            for (int32_t most = 0; most < 2000; most = most * 9 + 1) model_predict(&work, texts[t], ids, most);""",
    "numbers": """static const int32_t steps[] = {-5, 0, 1, 2, 7, 59, 60, 61, 119, 120, 121, 2147483647};
        for (int k = 0; k < 12; ++k) model_predict(&work, floats, steps[k], %s);""",
    "tokens": "model_predict(&work, ids, 7, ids + 100); ids[3] = 99; model_predict(&work, ids, 7, ids + 100);"
        "ids[3] = -1; model_predict(&work, ids, 7, ids + 100); model_predict(&work, ids, 2147483647, ids + 100);",
    "forecaster": """static const int32_t steps[] = {-5, 0, 1, 2, 7, 13, 59, 60, 61, 2147483647};
        for (int k = 0; k < 400; ++k) doubles[k] = 3.0 + k % 7;
        for (int k = 0; k < 10; ++k) for (int32_t s = -1; s < 3; ++s)
            model_predict(&work, doubles, steps[k], %s doubles + 1000);
        doubles[3] = -1.0; doubles[4] = (double)NAN; doubles[5] = (double)INFINITY;
        for (int32_t s = 0; s < 1; ++s) model_predict(&work, doubles, 40, %s doubles + 1000);""",
}  # fmt: skip


def calls(form: PortableModel) -> str:
    """A program that calls a header's interface."""
    reads, kind = form.settings.get("reads"), form.kind
    if kind in ("language", "writer"):
        body = CALLS[kind]
    elif kind == "forecaster":
        body = CALLS[kind].replace("%s", "s, " * (len(form.graphs["forecast"].inputs) - 1))
    elif kind == "numbers":
        body = CALLS["numbers"].replace(", %s", "")
    elif reads == "tokens":
        body = CALLS["words" if form.settings.get("words") else "text" if kind == "classifier" else "tokens"]
    else:
        body = CALLS["numbers"].replace("%s", "floats + 10000" if kind == "classifier" else "ids")
    rounds = f"for (int round = 0; round < 2; ++round) {{ fill(round);\n{body}\n}}"
    return f"{TEXTS}int main(void) {{ {rounds} return 0; }}\n"


def failures(form: PortableModel, quantize: bool, folder: Path) -> list[str]:
    """By which compilers a header does not compile, or its test fails."""
    text = header(form, "model", 60, quantize).text
    (folder / "model.h").write_text(text)
    (folder / "calls.c").write_text('#include "model.h"\n' + calls(form))
    found = []
    for name, command in COMPILERS.items():
        if shutil.which(command[0]) is None:
            continue
        program = str(folder / "program")
        sides = [(["-DRECUR_SELFTEST", "model.h"], "self-test")]
        if "sanitized" in name:
            sides.append((["-Wno-unused-function", "calls.c"], "calls"))
        for source, what in sides:
            built = [*command, *source, "-o", program, "-lm"]
            for step in (built, [program]):
                done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
                if done.returncode:
                    lines = (done.stderr or done.stdout).strip().splitlines()
                    said = next((line for line in lines if "error" in line), (lines or ["it says nothing"])[-1])
                    found.append(f"{name}, {what}: {said}")
                    break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name begins with one of these")
    asked = tuple(parser.parse_args().only.split(","))
    here = [name for name, command in COMPILERS.items() if shutil.which(command[0])]
    print("compilers:", ", ".join(here))
    failed = 0
    for name, make in runs.EVERY.items():
        if not name.startswith(asked):
            continue
        with tempfile.TemporaryDirectory() as folder:
            form = to_portable(make(Path(folder)))
            for quantize in (False, True):
                found = failures(form, quantize, Path(folder))
                failed += len(found)
                print(f"{name:<24}{'8 bits' if quantize else 'float32':<10}{'; '.join(found) or 'passes'}", flush=True)
    raise SystemExit(f"{failed} failed" if failed else 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
