"""Models as C headers: what gcc makes of them, how they are tested before they are kept, and what is refused."""

from __future__ import annotations

import ctypes
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch

from recur.data.text import Subwords, Vocab
from recur.errors import OptionError, RecurError
from recur.export import ExportOptions, c_header, export, to_portable
from recur.export.c_header import header, write
from recur.export.graphs import PortableModel
from recur.export.tokenizers import VocabularyPrinter
from tests.export import runs
from tests.export.c_library import STRICT, library, needs_gcc, run_self_test

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> runs.Predictor:  # type: ignore[type-arg]
    return runs.language(tmp_path_factory.mktemp("language"), num_layers=2, cell="lstm")


@pytest.fixture(scope="module")
def form(language: runs.Predictor) -> PortableModel:  # type: ignore[type-arg]
    """Followed once, for all headers."""
    return to_portable(language)


def text_of(function: ctypes._NamedFuncPointer, *given: object) -> tuple[int, str]:
    made = ctypes.create_string_buffer(500)
    return function(*given, made), made.value.decode(errors="replace")


def test_two_models_live_in_one_program(
    language: runs.Predictor,  # type: ignore[type-arg]
    form: PortableModel,
    tmp_path: Path,
) -> None:
    """In float32, and in 8 bits."""
    headers = {"lm": header(form, "lm", 60).text, "narrow": header(form, "narrow", 60, quantize=True).text}
    calls = """
    static lm_work work; static lm_state state; static narrow_work other; static narrow_state own;
    int32_t go_on(const char *prompt, char *text); int32_t go_on_narrow(const char *prompt, char *text);
    int32_t go_on(const char *prompt, char *text) {
        return lm_predict(&state, &work, prompt, text, 500, 20, 0.0f, 1);
    }
    int32_t go_on_narrow(const char *prompt, char *text) {
        return narrow_predict(&own, &other, prompt, text, 500, 20, 0.0f, 1);
    }
    int32_t draw(float *logits, int32_t top_k, float top_p, uint64_t *seed);
    int32_t draw(float *logits, int32_t top_k, float top_p, uint64_t *seed) {
        return lm_choose(logits, 0.5f, top_k, top_p, seed);
    }
    void after(int32_t token, float *logits);
    void after(int32_t token, float *logits) { lm_init(&state); lm_step(&state, &work, token, logits); }
    """
    compiled = library(tmp_path, headers, calls)
    for prompt in ("the cat", "", "a\nb"):
        expected = language.generate(prompt, 20, top_k=1)[0]
        assert text_of(compiled.go_on, prompt.encode()) == (len(expected), expected)
        assert text_of(compiled.go_on_narrow, prompt.encode())[0] == 20
    assert text_of(compiled.go_on, "Ω".encode())[0] == -1  # never seen
    K = len(language.vocab)
    unknown = [(ctypes.c_float * K)() for _ in range(4)]
    for token, logits in zip((0, -1, K, 2**31 - 1), unknown, strict=True):
        compiled.after(token, logits)
    assert all(list(logits) == list(unknown[0]) for logits in unknown), "tokens that there are not are <unk>"
    _check_draws(compiled, len(language.vocab))


def _check_draws(compiled: ctypes.CDLL, K: int) -> None:
    """Tokens come as often as they should."""
    logits = torch.linspace(-2.0, 0.0, K).roll(3)
    p, seed, n = (logits / 0.5).softmax(0), ctypes.c_uint64(7), 4000

    def drawn(top_k: int, top_p: float, count: int = n) -> torch.Tensor:
        found = torch.zeros(K)
        for _ in range(count):
            given = (ctypes.c_float * K)(*logits.tolist())
            found[compiled.draw(given, top_k, ctypes.c_float(top_p), ctypes.byref(seed))] += 1
        return found

    assert float((drawn(0, 1.0) / n - p).abs().max()) < 4 * float((p * (1 - p) / n).sqrt().max())
    best = p.argsort(descending=True)
    assert set(drawn(2, 1.0, 200).nonzero()[:, 0].tolist()) == set(best[:2].tolist())
    enough = int((p[best].cumsum(0) < 0.3).sum()) + 1  # the fewest that have 0.3 together
    assert set(drawn(0, 0.3, 500).nonzero()[:, 0].tolist()) == set(best[:enough].tolist())


def test_subwords_are_cut_as_sentencepiece_cuts_them(tmp_path: Path) -> None:
    model = runs.language(tmp_path, token="subword", pieces=300)
    calls = "int32_t cut(const char *t, int32_t n, int32_t *ids);\nint32_t cut(const char *t, int32_t n, int32_t *ids) "
    calls += "{ return m_encode_vocab(t, n, ids, 200); }\n"
    compiled = library(tmp_path, {"m": header(to_portable(model), "m", 20).text}, calls)
    for text in ("the cat sat  on the mat\nand", "", "\n\n", "Zürich 漢字 the", "doggedly red barns"):
        ids, data = (ctypes.c_int32 * 200)(), text.encode()
        count = compiled.cut(data, len(data), ids)
        assert ids[:count] == model.run.vocab.encode(text).tolist()


def test_a_file_is_tested_before_it_is_kept(form: PortableModel, tmp_path: Path) -> None:
    path = tmp_path / "model.h"
    whole = write(form, path, ExportOptions())
    assert path.stat().st_size == whole.size
    assert whole.difference is not None
    assert whole.difference < 2e-6
    assert "largest difference" in run_self_test(path, "gcc", *STRICT, "-x", "c")
    narrow = write(form, path, ExportOptions(quantize=True, name="net"))
    assert narrow.size < whole.size
    assert narrow.difference is not None
    assert narrow.difference < 5e-4
    assert "net_step(" in path.read_text()


def test_what_is_wrong_is_said_in_a_line(
    language: runs.Predictor,  # type: ignore[type-arg]
    form: PortableModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [ExportOptions(name="2b"), ExportOptions(name="int")]
    for options in (*names, ExportOptions(max_length=0), ExportOptions(max_length=1 << 31)):
        with pytest.raises(OptionError, match="--name" if options in names else "--max-length"):
            write(form, tmp_path / "x.h", options)
    monkeypatch.setattr(c_header, "header", lambda *given: (None, "", "int main(void) { return oops; }\n"))
    with pytest.raises(RecurError, match="cannot compile the header.*error.*oops.*no file was written"):
        write(form, tmp_path / "x.h", ExportOptions())
    with pytest.raises(OptionError, match="unknown target 'cobol'"):
        export(language, "cobol", tmp_path / "x.h")
    assert not (tmp_path / "x.h").exists()


def test_the_self_test_can_fail(form: PortableModel, tmp_path: Path) -> None:
    text = header(form, "m", 20).text
    turned = text.replace("total[r] += w[d * some + r] * p;", "total[r] -= w[d * some + r] * p;")
    assert turned != text
    (tmp_path / "m.h").write_text(turned)
    with pytest.raises(subprocess.CalledProcessError):
        run_self_test(tmp_path / "m.h", "gcc", "-std=c99", "-x", "c")


def test_weights_are_not_changed(language: runs.Predictor, form: PortableModel) -> None:  # type: ignore[type-arg]
    before = {name: value.clone() for name, value in language.model.state_dict().items()}
    header(form, "m", 20, quantize=True)
    for name, value in language.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_only_unigram_subwords_are_written_in_c() -> None:
    """The encoder in C is a Viterbi search, which splits differently from the merges of byte-pair encoding."""
    lines = [f"line {k} of some text about rows and columns" for k in range(300)]
    vocab = Vocab.of_pieces(Subwords.train(lines, 320, "bpe"), Counter())
    with pytest.raises(OptionError, match="only unigram subwords with byte fallback are written in C"):
        VocabularyPrinter("m").encoder("vocab", vocab)
