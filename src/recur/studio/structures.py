"""Structure diagrams of recurrent networks as SVG: unrolled patterns, trees, grids, and the cells of LSTM and GRU.

Input is below, time goes to the right, output is on top. U multiplies the input, W the state, V gives the output. The
studio shows the diagrams with the shapes of a run; the documentation shows them with letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Annotated

from pydantic import Field

from recur.i18n import Language, translate
from recur.serve.http import RequestModel, validate
from recur.utils.types import JsonObject

BOX_WIDTH, BOX_HEIGHT, GAP, ROW = 74, 32, 128, 84
STEPS = 4
TIMES = ("t−1", "t", "t+1", "t+2")
STYLE = {
    "light": {"ink": "#1d2433", "dim": "#5a6478", "line": "#5a6478", "paper": "#ffffff", "time": "#b5450f"},
    "dark": {"ink": "#e8ecf4", "dim": "#a4afc3", "line": "#a4afc3", "paper": "#1e2129", "time": "#ffa76b"},
}
FILLS = {
    "light": {"input": "#e3ecf8", "state": "#dff1e2", "output": "#fbe9d7", "context": "#eee6f7", "gate": "#fdf3c9"},
    "dark": {"input": "#24405f", "state": "#1f4d33", "output": "#5c3a17", "context": "#44315f", "gate": "#55491a"},
}

Say = Callable[[str], str]
"""Translation of a label."""


@dataclass
class Shapes:
    """Sizes that are written next to a diagram: letters, or the numbers of a run."""

    D: str = "D"
    H: str = "H"
    K: str = "K"
    G: str = "H"
    """Rows of U and W: the number of gates times H."""

    @property
    def input_matrix(self) -> str:
        return f"U {self.G} × {self.D}"

    @property
    def state_matrix(self) -> str:
        return f"W {self.G} × {self.H}"

    @property
    def output_matrix(self) -> str:
        return f"V {self.K} × {self.H}"


@dataclass
class Canvas:
    """SVG under construction. Coordinates are the centres of boxes."""

    width: float
    height: float
    label: str
    parts: list[str] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        text: str,
        kind: str,
        width: float = BOX_WIDTH,
        height: float = BOX_HEIGHT,
        part: str = "",
    ) -> None:
        """Draw a box with a text; `part` names the quantity that it computes, for the Step view."""
        radius = height / 2 if kind == "state" else 6
        mark = f' data-part="{part}"' if part else ""
        self.parts.append(
            f'<rect class="{kind}"{mark} x="{x - width / 2:g}" y="{y - height / 2:g}" '
            f'width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        )
        self.text(x, y + 5, text, "letter")

    def text(self, x: float, y: float, text: str, kind: str = "note", anchor: str = "middle") -> None:
        """Write a text; a part in _{…} or ^{…} is set low or high."""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{_spans(text)}</text>')

    def path(self, d: str, kind: str = "edge") -> None:
        marker = "" if kind.endswith("plain") else f' marker-end="url(#{"time" if kind == "time" else "edge"}-head)"'
        self.parts.append(f'<path class="{kind.removesuffix(" plain")}" d="{d}"{marker}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "edge") -> None:
        self.path(f"M{x1:g} {y1:g}L{x2:g} {y2:g}", kind)

    def up(self, x: float, below: float, above: float) -> None:
        self.line(x, below - BOX_HEIGHT / 2, x, above + BOX_HEIGHT / 2 + 1)

    def forward(self, x1: float, x2: float, y: float, kind: str = "time") -> None:
        self.line(x1 + BOX_WIDTH / 2, y, x2 - BOX_WIDTH / 2 - 1, y, kind)

    def svg(self, style: bool = True) -> str:
        """Return the SVG; `style` adds colours for both themes, for use as an image."""
        heads = "".join(
            f'<marker id="{name}-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path class="{name}-head" d="M0 0 8 4 0 8z"/></marker>'
            for name in ("edge", "time")
        )
        sheet = f"<style>{_sheet()}</style>" if style else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="structure" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'role="img" aria-label="{escape(self.label)}">{sheet}<defs>{heads}</defs>'
            f'<rect class="paper" width="{self.width:g}" height="{self.height:g}"/>{"".join(self.parts)}</svg>\n'
        )


def _spans(text: str) -> str:
    """Return a text with its low and high parts as tspans."""
    found, shift = "", 0
    while text:
        plain, mark, rest = min((text.partition(sign) for sign in ("_{", "^{")), key=lambda cut: len(cut[0]))
        if plain:
            found += f'<tspan dy="{-shift}">{escape(plain)}</tspan>' if shift else escape(plain)
            shift = 0
        if not mark:
            break
        inside, _, text = rest.partition("}")
        own = 5 if mark == "_{" else -6
        found += f'<tspan dy="{own - shift}" font-size="72%">{escape(inside)}</tspan>'
        shift = own
    return found


def _sheet() -> str:
    """Return the style sheet of an image, for a light and a dark page."""
    letters = "font-family:'STIX Two Math','Cambria Math','Latin Modern Math',Cambria,'Times New Roman',serif"
    notes = "font-family:system-ui,'PingFang SC','Noto Sans CJK SC',sans-serif"

    def colours(theme: str) -> str:
        c, fills = STYLE[theme], FILLS[theme]
        return (
            f".paper{{fill:{c['paper']}}}text{{fill:{c['ink']}}}.note{{fill:{c['dim']}}}"
            f"rect,circle{{stroke:{c['line']}}}.edge,.time{{stroke:{c['line']}}}.time{{stroke:{c['time']}}}"
            f".edge-head{{fill:{c['line']}}}.time-head{{fill:{c['time']}}}.weight{{fill:{c['time']}}}"
            + "".join(f".{kind}{{fill:{fill}}}" for kind, fill in fills.items())
        )

    return (
        f"text{{{letters};font-size:17px}}.note{{{notes};font-size:12.5px}}.weight{{font-size:14px}}"
        ".edge,.time{fill:none;stroke-width:1.5}.time{stroke-width:2}.paper{stroke:none}"
        f"{colours('light')}@media(prefers-color-scheme:dark){{{colours('dark')}}}"
    )


# Patterns along time --------------------------------------------------------------------------------------


def _axes(rows: int, left: float = 20) -> tuple[Callable[[int], float], Callable[[int], float], float, float]:
    """Return x of a step, y of a row (0 is the lowest), and the size of the picture."""
    width, height = left + GAP * (STEPS - 1) + BOX_WIDTH + 60, ROW * (rows - 1) + BOX_HEIGHT + 60
    return (lambda k: left + BOX_WIDTH / 2 + 20 + GAP * k), (lambda row: height - 34 - ROW * row), width, height


def _indexed(letter: str, k: int, high: str = "") -> str:
    return f"{letter}{high and '^{' + high + '}'}_{{{TIMES[k]}}}"


def _chain(say: Say, shapes: Shapes, label: str, *, feedback: str = "", last: bool = False) -> Canvas:
    """Draw x → h → o → L along time. feedback: "only" in place of the edge between states, "also" in addition to it."""
    x, y, width, height = _axes(4)
    on = Canvas(width, height, label)
    for k in range(STEPS):
        on.box(x(k), y(0), _indexed("x", k), "input")
        on.box(x(k), y(1), _indexed("h", k), "state")
        on.up(x(k), y(0), y(1))
        if not last or k == STEPS - 1:
            on.box(x(k), y(2), _indexed("o", k), "output")
            on.box(x(k), y(3), _indexed("L", k), "context")
            on.up(x(k), y(1), y(2))
            on.up(x(k), y(2), y(3))
        if k + 1 < STEPS:
            if feedback != "only":
                on.forward(x(k), x(k + 1), y(1))
            if feedback:
                _back_in(on, x(k), y(2), x(k + 1), y(1))
    _weights(on, x, y, shapes, feedback)
    if last:
        on.text(x(2) - 20, y(2) + 5, say("one output, of the last state"))
    return on


def _back_in(on: Canvas, x1: float, y1: float, x2: float, y2: float) -> None:
    """Draw an edge from an output to the next state."""
    start, end = x1 + BOX_WIDTH / 2, x2 - BOX_WIDTH / 2 - 1
    on.path(f"M{start:g} {y1:g}C{start + 34:g} {y1:g} {end - 34:g} {y2 - 8:g} {end:g} {y2 - 8:g}", "time")


def _weights(on: Canvas, x: Callable[[int], float], y: Callable[[int], float], shapes: Shapes, feedback: str) -> None:
    """Write U, W and V next to the first edges of their kind."""
    on.text(x(0) + 7, (y(0) + y(1)) / 2 + 5, shapes.input_matrix, "weight", "start")
    on.text(x(STEPS - 1) + 7, (y(1) + y(2)) / 2 + 5, shapes.output_matrix, "weight", "start")
    middle = (x(0) + x(1)) / 2
    if feedback == "only":
        on.text(middle, y(2) - 24, f"W {shapes.G} × {shapes.K}", "weight")
    else:
        on.text(middle, y(1) + 20, shapes.state_matrix, "weight")
    if feedback == "also":
        on.text(middle, y(2) - 24, f"{shapes.G} × {shapes.K}", "weight")


def pattern_1(say: Say, shapes: Shapes) -> Canvas:
    return _chain(say, shapes, say("one output per step"))


def pattern_2(say: Say, shapes: Shapes) -> Canvas:
    return _chain(say, shapes, say("output fed back"), feedback="only")


def pattern_3(say: Say, shapes: Shapes) -> Canvas:
    return _chain(say, shapes, say("one output at the end"), last=True)


def unfolded(say: Say, shapes: Shapes) -> Canvas:
    """Draw the same network folded, with a loop, and unfolded."""
    x, y, width, height = _axes(3, left=190)
    on = Canvas(width, height, say("folded and unfolded"))
    left = 70.0
    for row, (letter, kind) in enumerate((("x", "input"), ("h", "state"), ("o", "output"))):
        on.box(left, y(row), letter, kind)
        for k in range(STEPS):
            on.box(x(k), y(row), _indexed(letter, k), kind)
        if row:
            for at in (left, *map(x, range(STEPS))):
                on.up(at, y(row - 1), y(row))
    for k in range(STEPS - 1):
        on.forward(x(k), x(k + 1), y(1))
        on.text((x(k) + x(k + 1)) / 2, y(1) - 7, "W", "weight")
    edge = left + BOX_WIDTH / 2
    on.path(
        f"M{edge:g} {y(1) - 7:g}C{edge + 46:g} {y(1) - 34:g} {edge + 46:g} {y(1) + 34:g} {edge + 1:g} {y(1) + 7:g}",
        "time",
    )
    on.text(edge + 44, y(1) + 5, "W", "weight")
    for at in (left, *map(x, range(STEPS))):
        on.text(at + 7, (y(0) + y(1)) / 2 + 5, "U", "weight", "start")
        on.text(at + 7, (y(1) + y(2)) / 2 + 5, "V", "weight", "start")
    on.text(left, 16, say("folded"))
    on.text((x(1) + x(2)) / 2, 16, say("unfolded: the same U, W, V at every step"))
    return on


def conditioned(say: Say, shapes: Shapes) -> Canvas:
    """Draw a network that writes, with one vector x at every step through R, or as the first state."""
    x, y, width, height = _axes(3, left=80)
    height += 74
    on = Canvas(width, height, say("a sequence conditioned on a vector"))
    low, bus, middle = height - 34, y(0) + 36, (x(0) + x(3)) / 2
    on.box(middle, low, "x", "context", 110)
    on.line(middle, low - 16, middle, bus, "time plain")
    on.line(x(0) - 80, bus, x(3) - 50, bus, "time plain")
    for k in range(STEPS):
        on.box(x(k), y(1), _indexed("h", k), "state")
        on.box(x(k), y(2), _indexed("o", k), "output")
        on.box(x(k), y(0), _indexed("y", k), "input")
        on.up(x(k), y(1), y(2))
        on.up(x(k), y(0), y(1))
        on.path(f"M{x(k) - 50:g} {bus:g}L{x(k) - 50:g} {y(1) + 34:g}L{x(k) - 30:g} {y(1) + 14:g}", "time")
        if k + 1 < STEPS:
            on.forward(x(k), x(k + 1), y(1), "edge")
    on.text(x(0) - 44, (y(0) + y(1)) / 2 + 12, "R", "weight", "start")
    on.path(f"M{x(0) - 80:g} {bus:g}L{x(0) - 80:g} {y(1):g}L{x(0) - 38:g} {y(1):g}", "time")
    on.text(24, y(1) - 14, say("or as h₀"), "note", "start")
    return on


def feedback(say: Say, shapes: Shapes) -> Canvas:
    return _chain(say, shapes, say("conditioned on a sequence, output fed back"), feedback="also")


def bidirectional(say: Say, shapes: Shapes) -> Canvas:
    x, y, width, height = _axes(4)
    on = Canvas(width, height, say("bidirectional"))
    shift = 20
    for k in range(STEPS):
        on.box(x(k), y(0), _indexed("x", k), "input")
        on.box(x(k) - shift, y(1), _indexed("h", k, "→"), "state", 60)
        on.box(x(k) + shift, y(2), _indexed("h", k, "←"), "state", 60)
        on.box(x(k), y(3), _indexed("o", k), "output")
        on.line(x(k) - shift, y(0) - 16, x(k) - shift, y(1) + 17)
        on.line(x(k) + shift + 16, y(0) - 16, x(k) + shift + 16, y(2) + 17)
        on.line(x(k) - shift - 8, y(1) - 16, x(k) - shift - 8, y(3) + 17)
        on.line(x(k) + shift, y(2) - 16, x(k) + shift, y(3) + 17)
        if k + 1 < STEPS:
            on.line(x(k) - shift + 30, y(1), x(k + 1) - shift - 31, y(1), "time")
            on.line(x(k + 1) + shift - 30, y(2), x(k) + shift + 31, y(2), "time")
    on.text(x(0) + 45, y(1) + 24, f"W^{{→}} {shapes.G} × {shapes.H}", "weight")
    on.text(x(1) - 20, y(2) - 20, f"W^{{←}} {shapes.G} × {shapes.H}", "weight")
    on.text(x(3) - 24, y(3) - 22, f"V {shapes.K} × 2·{shapes.H}", "weight")
    return on


def encoder_decoder(say: Say, shapes: Shapes) -> Canvas:
    gap, y0 = 96.0, 60.0
    on = Canvas(760, 300, say("encoder–decoder"))
    xs = [56 + gap * k for k in range(3)]
    ys = [xs[2] + 190 + gap * k for k in range(4)]
    h, low, high = y0 + 90, y0 + 180, y0
    for k, at in enumerate(xs):
        index = ("1", "2", "n")[k]
        on.box(at, low, f"x_{{{index}}}", "input", 60)
        on.box(at, h, f"h_{{{index}}}", "state", 60)
        on.up(at, low, h)
        if k:
            on.line(xs[k - 1] + 30, h, at - 31, h, "time")
    on.box(xs[2] + 95, h, "C", "context", 50)
    on.line(xs[2] + 30, h, xs[2] + 69, h, "time")
    for k, at in enumerate(ys):
        index = ("1", "2", "3", "m")[k]
        on.box(at, h, f"g_{{{index}}}", "state", 60)
        on.box(at, high, f"y_{{{index}}}", "output", 60)
        on.up(at, h, high)
        if k:
            on.line(ys[k - 1] + 30, h, at - 31, h, "time")
            on.path(
                f"M{ys[k - 1] + 30:g} {high:g}C{ys[k - 1] + 56:g} {high:g} {at - 56:g} {h - 8:g} {at - 31:g} {h - 8:g}"
            )
    on.line(xs[2] + 120, h, ys[0] - 31, h, "time")
    for at in ys[1:]:
        on.path(f"M{xs[2] + 95:g} {h + 16:g}C{xs[2] + 95:g} {h + 66:g} {at:g} {h + 66:g} {at:g} {h + 17:g}")
    on.text(xs[1], 290, say("encoder: reads n symbols"))
    on.text((ys[1] + ys[2]) / 2, 290, say("decoder: writes m symbols"))
    on.text(xs[2] + 95, h - 24, say("context"))
    return on


def deep(say: Say, shapes: Shapes) -> Canvas:
    """Draw three ways to make a network deeper: layers of states, layers inside the step, and a skip connection."""
    on = Canvas(800, 400, say("deep"))
    names = (
        say("layers of states"),
        say("deeper input, transition and output"),
        say("a skip connection around the transition"),
    )
    for k, name in enumerate(names):
        at, end = 70.0 + 262 * k, 200.0 + 262 * k
        states = (175.0, 245.0) if k == 0 else (210.0,)
        for column, x in enumerate((at, end)):
            time = TIMES[column]
            on.box(x, 340, f"x_{{{time}}}", "input", 60)
            on.box(x, 70, f"o_{{{time}}}", "output", 60)
            for level, y in enumerate(states):
                high = f"^{{({len(states) - level})}}" if k == 0 else ""
                on.box(x, y, f"h{high}_{{{time}}}", "state", 64)
            if k:
                on.box(x, 278, "tanh", "gate", 50, 26)
                on.box(x, 140, "tanh", "gate", 50, 26)
                for low, top in ((324, 292), (265, 227), (194, 154), (127, 87)):
                    on.line(x, low, x, top)
            else:
                for low, top in ((324, 262), (229, 192), (159, 87)):
                    on.line(x, low, x, top)
        for y in states:
            if k == 0:
                on.line(at + 32, y, end - 33, y, "time")
            else:
                middle = (at + end) / 2
                on.line(at + 32, y, middle - 24, y, "time")
                on.box(middle, y, "tanh", "gate", 46, 26)
                on.line(middle + 23, y, end - 33, y, "time")
                if k == 2:
                    arc = y - 62
                    on.path(
                        f"M{at + 20:g} {y - 15:g}C{at + 40:g} {arc:g} {end - 40:g} {arc:g} {end - 20:g} {y - 17:g}",
                        "time",
                    )
        on.text((at + end) / 2, 388, name)
    return on


# Other shapes than a chain --------------------------------------------------------------------------------


def tree(say: Say, shapes: Shapes) -> Canvas:
    on = Canvas(620, 330, say("tree"))
    leaves = [80.0 + 150 * k for k in range(4)]
    pairs = [(leaves[0] + leaves[1]) / 2, (leaves[2] + leaves[3]) / 2]
    root = (pairs[0] + pairs[1]) / 2
    for k, x in enumerate(leaves):
        on.box(x, 296, f"x_{{{k + 1}}}", "input")
        on.box(x, 222, f"h_{{{k + 1}}}", "state")
        on.up(x, 296, 222)
        on.line(x, 206, pairs[k // 2] + (-16 if k % 2 == 0 else 16), 155, "time")
    for k, x in enumerate(pairs):
        on.box(x, 138, "h_{12}" if k == 0 else "h_{34}", "state")
        on.line(x, 122, root + (-16 if k == 0 else 16), 77, "time")
    on.box(root, 60, "h_{1234}", "state", 84)
    on.line(root + 42, 60, root + 96, 60)
    on.box(root + 134, 60, "o", "output")
    on.text(leaves[0] + 7, 264, "U", "weight", "start")
    on.text((leaves[0] + pairs[0]) / 2 - 14, 182, "W_{l}", "weight", "end")
    on.text((leaves[1] + pairs[0]) / 2 + 14, 182, "W_{r}", "weight", "start")
    on.text(root + 69, 52, "V", "weight")
    on.text(40, 30, say("depth log τ, not τ; all nodes share both W"), "note", "start")
    return on


def grid(say: Say, shapes: Shapes) -> Canvas:
    on = Canvas(620, 330, say("grid"))
    x, y = (lambda k: 110.0 + 130 * k), (lambda r: 60.0 + 80 * r)
    for r in range(3):
        for k in range(4):
            on.box(x(k), y(r), f"h_{{{r + 1},{k + 1}}}", "state")
            if k:
                on.forward(x(k - 1), x(k), y(r))
            if r:
                on.line(x(k), y(r - 1) + 16, x(k), y(r) - 17, "time")
            on.path(f"M{x(k) - 52:g} {y(r) + 38:g}L{x(k) - 24:g} {y(r) + 18:g}")
    on.text(x(0) - 60, y(0) + 52, "x_{1,1}", "letter")
    on.text((x(0) + x(1)) / 2, y(0) - 9, "W_{1}", "weight")
    on.text(x(0) + 8, (y(0) + y(1)) / 2 + 5, "W_{2}", "weight", "start")
    on.text(30, 306, say("each point reads its input, the state on the left and the state above"), "note", "start")
    return on


# Cells ----------------------------------------------------------------------------------------------------


def lstm(say: Say, shapes: Shapes) -> Canvas:
    on = Canvas(720, 400, say("LSTM cell"))
    memory, gates, bus = 70.0, 230.0, 320.0
    at = {"f": 150.0, "i": 270.0, "g": 370.0, "o": 500.0}
    on.line(30, memory, 646, memory, "time")
    on.text(24, memory - 12, "c_{t−1}", "letter", "start")
    on.text(662, memory + 5, "c_{t}", "letter", "start")
    on.text(24, bus + 24, "h_{t−1}", "letter", "start")
    on.line(30, bus, at["o"], bus, "edge plain")
    on.box(90, 374, "x_{t}", "input", 60)
    on.line(90, 358, 90, bus, "edge plain")
    for gate, x in at.items():
        on.box(x, gates, "tanh" if gate == "g" else "σ", "gate", 56, part=gate)
        on.line(x, bus, x, gates + 17)
        on.text(x + 8, gates + 52, f"U_{{{gate}}}, W_{{{gate}}}", "weight", "start")
    _operator(on, at["f"], memory, "⊙")
    on.line(at["f"], gates - 16, at["f"], memory + 14)
    on.text(at["f"] + 8, 150, "f", "letter", "start")
    middle = (at["i"] + at["g"]) / 2
    _operator(on, middle, 150, "⊙")
    on.path(f"M{at['i']:g} {gates - 16:g}L{at['i']:g} 150L{middle - 14:g} 150")
    on.path(f"M{at['g']:g} {gates - 16:g}L{at['g']:g} 150L{middle + 14:g} 150")
    on.text(at["i"] - 14, 178, "i", "letter")
    on.text(at["g"] + 16, 178, "c̃", "letter")
    _operator(on, middle, memory, "+", "c")
    on.line(middle, 137, middle, memory + 14)
    on.box(600, 150, "tanh", "gate", 56)
    on.line(600, memory, 600, 133)
    _operator(on, 600, gates, "⊙", "h")
    on.line(600, 167, 600, gates - 14)
    on.line(at["o"] + 28, gates, 586, gates)
    on.text(558, gates - 9, "o", "letter")
    on.path(f"M600 {gates + 13:g}L600 {bus:g}L646 {bus:g}", "time")
    on.text(662, bus + 5, "h_{t}", "letter", "start")
    for gate, words in (
        ("f", say("forget gate")),
        ("i", say("input gate")),
        ("g", say("candidate")),
        ("o", say("output gate")),
    ):
        on.text(at[gate], 350, words)
    on.text(330, 26, say("memory: only ⊙ f and + act on it"))
    return on


def gru(say: Say, shapes: Shapes) -> Canvas:
    on = Canvas(720, 380, say("GRU cell"))
    top, bus = 60.0, 300.0
    on.line(30, top, 646, top, "time")
    on.text(24, top - 12, "h_{t−1}", "letter", "start")
    on.text(662, top + 5, "h_{t}", "letter", "start")
    on.box(60, 340, "x_{t}", "input", 60)
    on.path(f"M60 324L60 {bus:g}L520 {bus:g}", "edge plain")
    on.line(60, top, 60, bus, "edge plain")
    at = {"r": 180.0, "n": 380.0, "z": 520.0}
    for gate, x in at.items():
        on.box(x, 226, "tanh" if gate == "n" else "σ", "gate", 56, part="h̃" if gate == "n" else gate)
        on.line(x, bus, x, 243)
        on.text(x + 8, 276, f"U_{{{gate}}}, W_{{{gate}}}", "weight", "start")
    _operator(on, 270, 226, "⊙")
    on.line(208, 226, 256, 226)
    on.text(230, 216, "r", "letter")
    on.line(270, bus, 270, 240)
    on.line(284, 226, 351, 226)
    on.text(318, 216, "r ⊙ W_{n} h", "note")
    _operator(on, 380, 140, "⊙")
    on.line(380, 210, 380, 154)
    on.text(388, 188, "h̃", "letter", "start")
    _operator(on, 520, top, "⊙")
    on.line(520, 210, 520, top + 14)
    on.text(528, 140, "z", "letter", "start")
    on.line(520, 140, 394, 140)
    on.text(455, 132, "1 − z", "note")
    _operator(on, 600, top, "+", "h")
    on.path(f"M380 127L380 100L600 100L600 {top + 14:g}")
    for gate, words in (("r", say("reset gate")), ("n", say("candidate")), ("z", say("update gate"))):
        on.text(at[gate], 322, words)
    return on


def _operator(on: Canvas, x: float, y: float, sign: str, part: str = "") -> None:
    mark = f' data-part="{part}"' if part else ""
    on.parts.append(f'<circle class="output"{mark} cx="{x:g}" cy="{y:g}" r="13"/>')
    on.text(x, y + 6, sign, "letter")


DIAGRAMS: Mapping[str, Callable[[Say, Shapes], Canvas]] = {
    "unfolded": unfolded,
    "pattern-1": pattern_1,
    "pattern-2": pattern_2,
    "pattern-3": pattern_3,
    "conditioned": conditioned,
    "feedback": feedback,
    "bidirectional": bidirectional,
    "encoder-decoder": encoder_decoder,
    "deep": deep,
    "tree": tree,
    "grid": grid,
    "lstm": lstm,
    "gru": gru,
}


def draw(name: str, language: Language = "en", shapes: Shapes | None = None, style: bool = True) -> str:
    """Return a diagram as SVG."""
    return DIAGRAMS[name](lambda label: translate(label, language), shapes or Shapes()).svg(style)


Size = Annotated[int, Field(ge=0, le=10**9)]


class StructureRequest(RequestModel):
    """Sizes of a run, 0 for letters, and the language of the labels."""

    D: Size = 0
    H: Size = 0
    K: Size = 0
    gates: Size = 1
    language: str = "en"


def structures(request: JsonObject) -> JsonObject:
    """Return all diagrams as SVG without colours, which the page has."""
    asked = validate(StructureRequest, request)
    language: Language = "zh" if asked.language == "zh" else "en"
    shapes = Shapes()
    if asked.H:
        shapes = Shapes(str(asked.D), str(asked.H), str(asked.K), str(asked.gates * asked.H))
    found = {name: make(lambda label: translate(label, language), shapes) for name, make in DIAGRAMS.items()}
    return {"diagrams": [{"name": name, "label": on.label, "svg": on.svg(style=False)} for name, on in found.items()]}
