"""What makes the site: stamps, links to sources, executed blocks, notebooks, figures, and a small site built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

import recur
from docs.maker import (
    build,
    checking,
    chinese,
    copied,
    drawings,
    executing,
    hooks,
    languages,
    merit,
    notebooks,
    sources,
)
from docs.maker.blocks import Block, blocks_of
from docs.maker.languages import DOCS, ROOT, Pair, pairs

PAGE = """# A page

```python run short="range(9) => range(2)"
print(sum(range(9)))
3 + 4
```

```sh skip="why not"
recur train nothing.txt
```
"""


def test_a_stamp_notices_a_change_in_either_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "ROOT", tmp_path)
    pair = Pair(tmp_path / "a.md", tmp_path / "a.zh.md")
    assert "missing" in (pair.why_stale() or "missing")
    pair.english.write_text("one"), pair.chinese.write_text("一")
    assert "no stamp" in (pair.why_stale() or "")
    pair.stamp()
    assert pair.why_stale() is None
    for path in pair:
        before = path.read_text()
        path.write_text(before + "!")
        assert path.name in (pair.why_stale() or "")
        path.write_text(before)
    assert pair.why_stale() is None


def test_both_languages_of_every_page_say_the_same() -> None:
    assert [why for pair in pairs() if (why := pair.why_stale())] == []


def test_every_page_stands_in_the_nav() -> None:
    text = (ROOT / "mkdocs.yml").read_text().replace("!!python/object/apply:pymdownx.slugs.slugify", "")
    named = set(re.findall(r"[\w./-]+\.md", str(yaml.safe_load(text)["nav"])))
    assert {pair.english.relative_to(DOCS).as_posix() for pair in pairs() if DOCS in pair.english.parents} <= named


def test_blocks_know_their_words() -> None:
    first, second = blocks_of(PAGE)
    assert (first.run, first.shortened.splitlines()[0], second.skip) == (True, "print(sum(range(2)))", "why not")
    with pytest.raises(ValueError, match="unknown words"):
        blocks_of(PAGE.replace("python run", "python rnu"))
    with pytest.raises(ValueError, match="no such text"):
        _ = Block("python", "a", options={"short": "b => c"}).shortened
    assert Block("sh", "recur doctor   # words\n").meaning == Block("sh", "recur doctor # 字\n").meaning


def test_blocks_are_executed_and_their_results_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    shell = ["sh", "echo '<p>' > made.html; echo done"]
    draws = ["python", "import matplotlib.pyplot as plt\nplt.plot([1, 2])"]
    results = executing.run([["python", blocks_of(PAGE)[0].source], shell, draws], tmp_path)
    assert [result["text"] for result in results] == ["36\n7", "done", ""]
    assert [result["files"] for result in results] == [[], ["2-made.html"], ["3-1.svg"]]
    shown = hooks.below(blocks_of(PAGE)[0], results[2], tmp_path, "tutorials/x.html")
    assert 'src="x-3-1.svg"' in shown[0]
    with pytest.raises(SystemExit, match="exit 3"):
        executing.run_shell("exit 3")


def test_links_to_sources_find_their_line() -> None:
    found = sources.Sources()
    text = found.linked("[`bptt.py`](../src/recur/ops/bptt.py#BPTT.parse)", "page.html", DOCS)
    line = int(re.search(r"#L-(\d+)", text)[1])  # type: ignore[index]
    assert "def parse" in (ROOT / "src/recur/ops/bptt.py").read_text().splitlines()[line - 1]
    assert f"bptt.py:{line}" in text
    for link in ("../src/recur/ops/bptt.py#Nothing", "../src/recur/nothing.py"):
        with pytest.raises(ValueError, match=r"has no|leads to nothing"):
            found.linked(f"[x]({link})", "page.html", DOCS)
    assert 'id="L-1"' in sources.of_file(ROOT / "src/recur/errors.py") or 'name="L-1"' in sources.of_file(
        ROOT / "src/recur/errors.py"
    )


def test_a_link_with_words_finds_the_line_that_holds_them() -> None:
    page = '[`elman.py`](../src/recur/reference/elman.py#step_backward "phi_prime(")'
    shown = sources.Sources().linked(page, "x.html", DOCS)
    path = ROOT / "src" / "recur" / "reference" / "elman.py"
    line, content = sources.line_with(path, "step_backward", "phi_prime(")
    assert path.read_text().splitlines()[line - 1].strip() == content == "da = phi_prime(s_next) * ds_next"
    assert f"elman.py:{line}</code></a> `{content}`" in shown
    assert line > sources.line_of(path, "step_backward")
    assert sources.line_with(path, "", "s_t = φ(a_t)")[0] < 10  # of the file's own words
    for name, words in (("step_backward", "s_next = phi"), ("nothing", "da")):
        with pytest.raises(ValueError, match="elman.py"):
            sources.line_with(path, name, words)


def test_a_figure_made_without_pyplot_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "from recur.utils.files import new_figure\nfigure, _ = new_figure()\nfigure"
    (result,) = executing.run([["python", source]], tmp_path)
    assert (result["text"], result["files"]) == ("", ["1-1.svg"])


def test_figures_and_conclusions_are_chinese_on_a_chinese_page(tmp_path: Path) -> None:
    drawn = '<svg><text x="1">steps back</text><text x="2">forget bias 4</text><text x="3">&lt;eos&gt;</text></svg>'
    (tmp_path / "1-1.svg").write_text(drawn)
    (tmp_path / "2-1.svg").write_text('<svg><text x="1">t</text></svg>')
    lab = (
        "∂c_t/∂c_{t−1} = f_t along the memory, so the forget gate is the decay of the gradient. The factor per step "
        "for each forget bias b, measured over 3 steps: a. With f near 0 the past is cut off on purpose. With f near 1 "
        "it is kept, as in the LSTM of 1997, which had no forget gate. For this reason the bias is often initialised "
        "to 1 or more."
    )
    found = chinese.result(executing.Result(text=f"loss 3\n{lab}", files=["1-1.svg", "2-1.svg", "x.html"]), tmp_path)
    assert found["files"] == ["1-1.zh.svg", "2-1.svg", "x.html"]
    assert found["text"].startswith("loss 3\n沿记忆 ∂c_t/∂c_{t−1} = f_t，所以遗忘门就是梯度的衰减")
    words = re.findall(r">([^<>]+)</text>", (tmp_path / "1-1.zh.svg").read_text())
    assert words == ["往回的步数", "遗忘偏置 4", "&lt;eos&gt;"]


def test_equations_side_by_side_are_several() -> None:
    made = hooks.EQUATION.sub(hooks.mathml, r'<div class="arithmatex">\[a = b \qquad c = d\]</div>')
    assert made.count("<math") == 2


def test_an_equation_stays_with_the_sign_behind_it_and_lines_of_chinese_join() -> None:
    content = (
        r'<p>复杂度是\n<code>k</code>，都是\n深 <span class="arithmatex">\(O(\log k)\)</span>。</p><pre>甲\n乙</pre>'
    )
    made = hooks.on_page_content(content.replace(r"\n", "\n"), None, None, None)
    assert made.startswith(
        '<p>复杂度是\n<span class="together"><code class="short">k</code>，</span>都是深 <span class="together"><math'
    )
    assert '<mi>log</mi><mspace width="0.17em"></mspace><mi>k</mi>' in made
    assert made.endswith("</math>。</span></p><pre>甲\n乙</pre>")


def test_a_page_becomes_a_notebook() -> None:
    found = notebooks.notebook(PAGE + "[words](x.md)", short=True)
    nbformat.validate(found)
    cells = [cell.source for cell in found.cells if cell.cell_type == "code"]
    assert any("range(2)" in cell for cell in cells)
    assert not any("nothing.txt" in cell for cell in cells)
    assert found.cells[-1].source == "words"


def test_links_anchors_and_networks_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#here"></a><a href="c.html"></a><img src="https://x/y.png">')
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html"></a>')
    found = checking.problems(tmp_path)
    assert [line.split(" ", 2)[2] for line in found] == [
        "leads to no anchor", "leads to no file", "would be fetched from a network",
    ]  # fmt: skip


def test_pages_have_the_figures_that_were_measured() -> None:
    for path, text in copied.written().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python -m docs merit"
    for found in copied.marked():
        ours, theirs = (sorted(m[3] for m in copied.MARK.finditer(path.read_text("utf-8"))) for path in found)
        assert ours == theirs, found.name
        for path in found:
            cells = re.findall(r"^\|.*<!-- \w+:[^>\n]*\|.*-->", path.read_text("utf-8"), flags=re.M)
            assert not cells, f"{path.name}: a mark with a bar in it would end its cell: {cells}"
    assert set(merit.TITLES) == set(merit.TABLES)
    for language in ("en", "zh"):
        page = merit.page(language)
        for path in merit.RESULTS.glob("*.json"):
            assert f"`bench/results/{path.name}` · 20" in page


def test_a_copied_figure_follows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied, "worked_out", lambda: {"known": "7"})
    monkeypatch.setattr(copied, "typed", lambda: {"said": "1,234.5"})
    monkeypatch.setitem(copied.ROWS, "few", lambda: [[None, "1"], [None, "2"]])
    for mark, value in {
        "known": "7",
        "said": "1,234.5",
        "said:.0f": "1234",
    }.items():
        assert copied.with_figures(f"<!-- merit:{mark} -->9<!-- -->") == f"<!-- merit:{mark} -->{value}<!-- -->"
    assert copied.with_figures("<!-- figure:new -->5<!-- -->") == "<!-- figure:new -->5<!-- -->"
    table = "<!-- merit:rows:few -->\n\n| 头 | n |\n| --- | --: |\n| 甲 | 8 |\n| 乙 | 9 |\n\n<!-- -->"
    assert copied.with_figures(table) == table.replace("8", "1").replace("9", "2")
    with pytest.raises(ValueError, match="2 rows were measured"):
        copied.with_figures(table.replace("| 乙 | 9 |\n", ""))
    with pytest.raises(ValueError, match="neither computed"):
        copied.with_figures("<!-- merit:unknown -->1<!-- -->")


def test_a_figure_is_typed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "a.md"
    page.write_text("<!-- figure:best -->59.3<!-- -->, <!-- merit:best -->59.3<!-- -->")
    monkeypatch.setattr(copied, "pairs", lambda: [Pair(page, page)])
    assert copied.typed() == {"best": "59.3"}
    page.write_text(page.read_text() + " <!-- figure:best -->59.4<!-- -->")
    with pytest.raises(ValueError, match="figure:best is written twice"):
        copied.typed()


def test_the_pictures_are_those_of_their_tables() -> None:
    for path, content in drawings.drawings().items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name}: python -m docs drawings"


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == recur.__version__
    assert f"## {recur.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_small_site_is_built(tmp_path: Path) -> None:
    """Of one page, in both languages: what was printed, equations as MathML, the switch. A broken link is refused."""
    pages = tmp_path / "docs"
    (pages / "zh").mkdir(parents=True)
    (pages / "assets").mkdir()
    for name in ("site.css", "iframe-worker.js"):
        (pages / "assets" / name).write_text("")
    text = PAGE + "\n$h_t = \\tanh(U x_t)$\n"
    (pages / "index.md").write_text(text)
    (pages / "zh" / "index.md").write_text(text.replace("# A page", "# 一页"))
    site = tmp_path / "site"
    found = build.build(site, pages=pages, only=["index.md"])
    assert found == []
    english, chinese = ((site / code / "index.html").read_text() for code in ("en", "zh"))
    assert "36" in english
    assert "<math" in english
    assert 'href="../zh/index.html"' in english
    assert 'href="../en/index.html"' in chinese
    assert "一页" in chinese
    (pages / "index.md").write_text(text + "[nothing](nothing.md)")
    with pytest.raises(SystemExit):
        build.build(site, pages=pages, only=["index.md"], languages=("en",))
