"""The command line as a person uses it: results, JSON, mistakes, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recur.cli.app import OUT_OF_MEMORY, app, run
from recur.ops.cpu import library
from tests.cuda.test_tuning import Described
from tests.support import HERE, ISAS, core, needs_core

BOOK = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 30


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(BOOK)
    (tmp_path / "test.txt").write_text("the network keeps a zebra\n")
    return "book.txt"


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1, "exactly one line of JSON"
    assert printed.err == ""
    return json.loads(printed.out)


# ngram ----------------------------------------------------------------------------------------------------


def test_ngram_measures_another_text(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "ngram", book, "--token", "word", "--order", "3", "--eval", "test.txt")
    assert {"perplexity", "tokens", "oov", "order", "smoothing", "seconds"} <= found.keys()
    assert (found["tokens"], found["oov"], found["order"], found["smoothing"]) == (6, 1, 3, "kneser-ney")
    assert found["unknown"] == ["zebra"]
    assert found["perplexity"] > 1


def test_ngram_holds_a_part_out_by_itself(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ngram", book, "--order", "4"]) == 0
    printed = capsys.readouterr()
    assert "4-gram, kneser-ney" in printed.out
    assert "perplexity" in printed.out
    assert "2,640 characters" not in printed.out
    assert "characters (1 file)" in printed.err, "notes go to standard error"
    assert run(["ngram", book, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_ngram_saves_loads_and_samples(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    word = ["--token", "word"]
    first = json_of(capsys, "ngram", book, *word, "--order", "3", "--save", "m.arpa", "--eval", "test.txt")
    again = json_of(capsys, "ngram", "--load", "m.arpa", *word, "--eval", "test.txt")
    assert again["perplexity"] == pytest.approx(first["perplexity"], rel=1e-4)
    a, b, c = (json_of(capsys, "ngram", book, *word, "--sample", "20", "--seed", s)["sample"] for s in "112")
    assert a == b != c


def test_an_infinite_perplexity_says_why(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "ngram",
        book,
        "--token",
        "word",
        "--order",
        "2",
        "--smoothing",
        "add-k",
        "--k",
        "0",
        "--eval",
        "test.txt",
    ]
    found = json_of(capsys, *options)
    assert found["perplexity"] is None
    assert found["impossible"] == "'a', token 4 of 6"
    assert run(options) == 0
    assert "infinite because of" in capsys.readouterr().out


def test_laplace_takes_an_epsilon_for_each_order(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["ngram", book, "--token", "word", "--order", "2", "--smoothing", "laplace", "--eval", "test.txt"]
    flags = (["--epsilon", "1"], ["--epsilon", "1", "--epsilon", "1"], ["--epsilon", "1", "--epsilon", "9"])
    one, same, other = (json_of(capsys, *options, *each)["perplexity"] for each in flags)
    assert one == same != other


def test_what_a_model_writes_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("a[:x:]\tb " * 50)
    assert run(["ngram", str(path), "--order", "6", "--sample", "60", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "[:x:]\tb" in printed, "neither an emoji nor spaces for a tab"
    (tmp_path / "esc.txt").write_text("\x1b[31mred \x1b[31mred\n" * 9)
    assert run(["stats", str(tmp_path / "esc.txt"), "--no-punctuation", "--quiet"]) == 0
    assert "\x1b" not in capsys.readouterr().out


# stats and doctor -----------------------------------------------------------------------------------------


def test_stats(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "stats", book, "--figure", "zipf.png", "--figure", "zipf.svg", "--top", "2")
    assert found["top"] == [{"token": "a", "count": 81}, {"token": "the", "count": 81}]
    assert len(found["zipf"]) == 3
    assert Path("zipf.png").exists()
    assert Path("zipf.svg").exists()
    assert run(["stats", book]) == 0
    printed = capsys.readouterr().out
    for title in ("most frequent", "Zipf", "coverage", "never seen in training"):
        assert title in printed
    assert "\x1b[" not in printed, "colours on a terminal only"


def test_stats_of_all_of_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"a{k} b{k} c{k}" for k in range(200)]
    (tmp_path / "book.txt").write_text("\n".join(lines) + "\n")
    usual = json_of(capsys, "stats", str(tmp_path / "book.txt"))
    assert usual["tokens"] == pytest.approx(0.9 * 600, abs=20)
    assert usual["counted_share"] == pytest.approx(0.9, abs=0.03)
    assert usual["novel"]
    found = json_of(capsys, "stats", str(tmp_path / "book.txt"), "--all", "--across-lines")
    assert (found["tokens"], found["counted_share"], found["across_lines"]) == (600, 1.0, True)
    assert [z["types"] for z in found["zipf"]] == [600, 599, 598]
    assert found["novel"] == {}
    assert [z["types"] for z in json_of(capsys, "stats", str(tmp_path / "book.txt"), "--all")["zipf"]] == [
        600,
        400,
        200,
    ]
    assert run(["stats", str(tmp_path / "book.txt")]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "first 90 %" in first
    assert "--all" in first
    assert "--across-lines" in first


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "doctor")
    assert {found["backends"][name] for name in (*HERE, "parallel")} == {"works"}
    assert found["cores"] >= 1
    assert all(rate > 0 for rate in found["threads"]["gflops"].values())
    assert run(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed
    assert "C++ core of the native backend" in printed


@needs_core
def test_doctor_knows_the_core(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = json_of(capsys, "doctor")["native"]
    assert found["built"]
    assert found["instructions"] in ISAS
    assert found["best"] == ISAS[-1]
    assert found["threads"] == "torch's own" or "no OpenMP" in found["threads"]
    has = ISAS[-1] == "avx512bf16"
    assert ("no AVX512-BF16" in found["bfloat16"], "no AVX512-VNNI" in found["int8"]) == (not has, not has)
    monkeypatch.setattr(core, "isa", 0)
    assert run(["doctor"]) == 0
    assert f"portable (best: {ISAS[-1]})" in capsys.readouterr().out or len(ISAS) == 1


def test_doctor_says_what_the_core_lacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_load", lambda: "it was not built when recur was installed")
    monkeypatch.setattr("recur.cli.doctor.shutil.which", lambda name: None)
    found = json_of(capsys, "doctor")
    assert found["native"]["missing"] == "it was not built when recur was installed"
    assert "C++ compiler" in found["native"]["cure"]
    assert "its C++ core is missing: it was not built" in found["backends"]["native"]
    assert found["backends"]["torch"] == "works"
    assert run(["doctor"]) == 0
    assert "no C++ compiler found" in capsys.readouterr().out


def test_doctor_says_what_the_gpu_can_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.ops.cuda.report.no_gpu", lambda: "torch sees no GPU")
    found = json_of(capsys, "doctor")["cuda"]
    assert found["missing"] == "torch sees no GPU"
    assert {"compiler", "cache"} <= set(found)
    exchanges = {"one launch per step": "works", "cluster": "needs compute capability 9.0, and this is 8.0"}
    described = {
        "name": "NVIDIA A100", "capability": "8.0", "multiprocessors": 108, "shared_kib": 163, "driver": "CUDA 13.0",
        "compiler": "NVRTC 13.0", "cache": "/tmp/x: 3 kernels", "table": "12 problems, shipped", "exchanges": exchanges,
    }  # fmt: skip
    monkeypatch.setattr("recur.ops.cuda.report.gpu_report", lambda: described)
    assert json_of(capsys, "doctor")["cuda"] == described
    assert run(["doctor"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    facts = "NVIDIA A100, compute capability 8.0, 108 multip", "measured 12 problems", "one launch per step works"
    for said in facts:
        assert said in printed
    assert "state by cluster needs compute capability 9.0" in printed


def test_doctor_measures_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recur.ops.cuda.report.no_gpu", lambda: "torch sees no GPU")
    assert run(["doctor", "--tune"]) != 0
    assert "there is nothing to measure: torch sees no GPU" in capsys.readouterr().err
    monkeypatch.setattr("recur.ops.cuda.report.no_gpu", lambda: None)
    monkeypatch.setattr("recur.ops.cuda.dispatch.missing_reason", lambda index: None)
    monkeypatch.setattr("recur.ops.cuda.report.GpuTuningTarget", Described)
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path))
    monkeypatch.setattr("recur.ops.cuda.tuning.SHIPPED_TABLES", tmp_path / "none")  # what is shipped is known
    found = json_of(capsys, "doctor", "--tune")
    path = tmp_path / "tables" / "h200.json"
    assert found == {"device": "NVIDIA H200", "problems": 3, "measured": 2, "path": str(path)}
    assert len(json.loads(path.read_bytes())["entries"]) == 2
    assert run(["doctor", "--tune", "--table", str(tmp_path / "mine.json"), "--minutes", "0"]) == 0
    assert "2 of 3" in capsys.readouterr().out, "what the user's own table has is known"
    assert (tmp_path / "mine.json").exists()


# Mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("ngram absent.txt", "no file 'absent.txt'"),
        ("ngram empty/", "holds no text file"),
        ("ngram nothing.txt", "nothing.txt is empty"),
        ("ngram short.txt", "too short for evaluation"),
        ("ngram --order 0", "order must be a whole number ≥ 1"),
        ("ngram --order three", "unable to convert"),
        ("ngram --smoothing foo", "Choose from"),
        ("ngram --epsilon a", 'unable to convert "a" into float'),
        ("ngram --load cut.arpa", "cut.arpa is cut off"),
        ("ngram book.txt --load cut.arpa", "not both"),
        ("ngram --sample -1", "--sample must not be negative"),
        ("ngram --temperature 0", "--temperature must be above 0"),
        ("ngram --sample 3 --seed -1", "seed must be a whole number in 0"),
        ("doctor --seed 99999999999999999999", "seed must be a whole number in 0"),
        ("cell gru other", "unexpected argument other; see recur cell --help"),
        ("eval nothing.txt --beam 2 short.txt", "no run among nothing.txt, short.txt"),
        ("eval empty --max-change -1", "max_change must not be negative"),
        ("export runs/book", "missing argument PATH; see recur export --help"),
        ("train --minutes", "option --minutes needs a value; see recur train --help"),
        ("import w.pt", "missing option --vocab; see recur import --help"),
        ("predict --beam 2", "no run: expected the folder of a run, which has a manifest.json"),
        ("ngram --sample 3 --prompt ☃", "not in the vocabulary: '☃'"),
        ("ngram --load words.arpa", "is a model of words, such as 'word'; read it with --token word"),
        ("ngram --max-vocab-size 4", "max_vocab_size must be above 4"),
        ("ngram --unheard-of", "unknown option --unheard-of. See recur ngram --help."),
        ("stats --figure zipf.xyz", "xyz"),
        ("stats --figure absent/zipf.png", "No such file"),
        ("ngrm", 'Did you mean "ngram"'),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: str, says: str, book: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    Path("nothing.txt").write_text("")
    Path("short.txt").write_text("a")
    Path("cut.arpa").write_text("\\data\\\nngram 1=5\n\\1-grams:\n-1\ta\n")
    Path("words.arpa").write_text("\\data\\\nngram 1=2\n\\1-grams:\n-1\tword\n-1\t</s>\n\\end\\\n")
    assert run([*arguments.split(), "--quiet"] if "unheard" not in arguments else arguments.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("recur: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("alloc_cpu: can't allocate memory: you tried …")])
def test_a_full_memory_is_one_line(
    error: Exception, book: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr("recur.data.text.Corpus.of", full)
    assert run(["stats", book]) == 2
    assert capsys.readouterr().err == f"recur: {OUT_OF_MEMORY}\n"


def test_a_figure_of_lines_too_short_for_triples(book: str) -> None:
    Path("short.txt").write_text("a b\n" * 40)
    assert run(["stats", "short.txt", "--figure", "zipf.png", "--quiet"]) == 0
    assert Path("zipf.png").stat().st_size


def test_files_may_stand_behind_options(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    twice = json_of(capsys, "stats", book, "--top", "2", book, "--all")
    once = json_of(capsys, "stats", "--top", "2", book, "--all")
    assert twice["tokens"] == 2 * once["tokens"]


def test_a_cell_that_prints_or_leaves_does_neither_for_us(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(*_: object, **options: object) -> None:
        print("from its step")
        sys.exit(0)

    monkeypatch.setattr("recur.diagnostics.cell_check.examine", leaves)
    loud, gone = tmp_path / "loud.py", tmp_path / "gone.py"
    loud.write_text("print('from its file')\nfrom recur.cells import GRU\nclass G(GRU): pass\n")
    gone.write_text("import sys\nsys.exit(0)\n")
    for path in (loud, gone):
        assert run(["cell", f"{path}:G", "--json"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.splitlines()[-1].startswith("recur: ")
        assert "SystemExit" in printed.err


def test_help_has_examples_for_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("ngram", "stats", "doctor"):
        assert run([verb, "--help"]) == 0
        printed = capsys.readouterr().out
        assert "Examples:" in printed
        assert f"recur {verb}" in printed
    assert run(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert run(["--version"]) == 0


def test_help_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from recur.cli.app import run; run(['--help']); sys.exit(len({'torch', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: Any) -> None:
    assert "ngram" in app.generate_completion(shell=shell)


# As processes ---------------------------------------------------------------------------------------------

RECUR = [sys.executable, "-c", "from recur.cli import main; main()"]


def test_standard_input_and_a_reader_that_leaves(book: str) -> None:
    done = subprocess.run(
        [*RECUR, "ngram", "-", "--token", "word", "--json"], input=BOOK, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["trained_on"] == "standard input"
    piped = f"{' '.join(map(repr, RECUR))} stats {book} --quiet | head -1; exit ${{PIPESTATUS[0]}}"
    left = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert left.returncode in (0, 1, 141)
    assert "Traceback" not in left.stderr


def test_interrupted() -> None:
    # A job of the background ignores SIGINT, and so would what it starts.
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {RECUR[2]}"
    command = [sys.executable, "-c", heeding, "ngram", "-"]
    waiting = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stdin is not None
    waiting.stdin.write("more than a pipe holds, so that it is being read\n" * 10_000)
    waiting.stdin.flush()
    os.kill(waiting.pid, signal.SIGINT)
    _, errors = waiting.communicate(timeout=20)
    assert waiting.returncode == 130
    assert "Traceback" not in errors
