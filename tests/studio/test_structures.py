"""Structure diagrams: valid SVG in both languages, inside their frames, with the shapes of a run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from recur.errors import OptionError
from recur.studio.structures import DIAGRAMS, Shapes, draw, structures

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_valid_and_inside_its_frame(name: str, language: str) -> None:
    root = ElementTree.fromstring(draw(name, language))
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)), float(rect.get("y", 0))
        assert 0 <= x <= x + float(rect.attrib["width"]) <= width
        assert 0 <= y <= y + float(rect.attrib["height"]) <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
    for path in root.iter(f"{SVG}path"):
        x_and_y = [float(part) for part in re.findall(r"-?[\d.]+", path.attrib["d"])]
        assert all(0 <= x <= width for x in x_and_y[::2])
        assert all(0 <= y <= height for y in x_and_y[1::2])
    assert root.attrib["aria-label"].isascii() == (language == "en" and "–" not in root.attrib["aria-label"])


def test_patterns_have_the_edges_of_the_textbook() -> None:
    edges = {name: draw(name).count('class="time"') for name in ("pattern-1", "pattern-2", "pattern-3", "feedback")}
    assert edges == {"pattern-1": 3, "pattern-2": 3, "pattern-3": 3, "feedback": 6}
    assert draw("pattern-3").count('class="output"') == 1
    # Pattern II: W multiplies an output of K numbers.
    assert "W H × K" in draw("pattern-2")
    assert "W H × K" not in draw("pattern-1")


def test_shapes_of_a_run_replace_the_letters() -> None:
    drawn = draw("pattern-1", shapes=Shapes("16", "24", "28", "96"))
    assert {"U 96 × 16", "W 96 × 24", "V 28 × 24"} <= set(re.findall(r"[UWV] \d+ × \d+", drawn))
    given = structures({"D": 16, "H": 24, "K": 28, "gates": 4, "language": "zh"})["diagrams"]
    assert [one["name"] for one in given] == list(DIAGRAMS)
    assert "W 96 × 24" in given[1]["svg"]
    assert "<style>" not in given[1]["svg"], "the page's policy forbids styles of others"
    with pytest.raises(OptionError):
        structures({"H": -1})
