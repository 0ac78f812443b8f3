"""The pages that are run: read along with the books, tutorials, what people get wrong; in English and in Chinese.

A lesson is a script in percent format that any editor with notebooks opens and `python FILE` runs. Its code stands there
once, its text twice, so that no page can change in one language alone:

    # %% [markdown] lang="en"
    r\"\"\"The state is $h_t = \\tanh(U x_t + W h_{t-1} + b)$: [[recur.reference.elman.step_forward: s_next =]]\"\"\"

    # %% [markdown] lang="zh"
    r\"\"\"状态 …\"\"\"

    # %%
    network = Recurrent("elman", 3, 4)
    network(x).outputs.shape

    # %% [sh]
    \"\"\"recur lab vanishing\"\"\"

What a cell prints, and its last expression, stand below it on the page; a figure is drawn there. `[[symbol: text]]` is
the file and the line where that text stands in the source of the symbol, found when the page is made. A line that ends in
`# quick: a → b` has b in the place of a where time is short, one that ends in `# whole` is then left out: see source.py.

    python -m lessons FOLDER            every page, figure and notebook, in FOLDER/en and FOLDER/zh
    python -m lessons --quick FOLDER    the same, shortened, as the tests run it
"""

from __future__ import annotations

from lessons.building import LANGUAGES, build, lessons
from lessons.running import run
from lessons.source import Lesson

__all__ = ["LANGUAGES", "Lesson", "build", "lessons", "run"]
