"""Programs of torch.export, opened in a process that has no recur."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from recur.export import export
from tests.export import runs
from tests.support import needs_core

pytestmark = needs_core

ALONE = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.modules["recur"] = None
import torch
from safetensors.torch import load_file, save_file
about = {"start": "", "carried": ""}
model = torch.export.load("model.pt2", extra_files=about).module()
given = load_file("given.safetensors")
logits, h, c = model(given["tokens"], given["h_0"], given["c_0"])
first, *state = model(given["tokens"][:, :1], given["h_0"], given["c_0"])
rest = model(given["tokens"][:, 1:], *state)[0]
save_file({"logits": logits, "h": h, "c": c, "again": torch.cat([first, rest], 1)}, "found.safetensors")
print(json.dumps(about))
"""


def test_a_model_opens_where_there_is_no_recur(tmp_path: Path) -> None:
    model = runs.language(tmp_path, cell="lstm")
    written = export(model, "torch", tmp_path / "model.pt2")
    assert written.paths == (tmp_path / "model.pt2",)
    assert written.difference is not None
    assert written.difference < 1e-5
    tokens = torch.randint(4, len(model.vocab), (4, 11))
    h, c = torch.randn(4, 6), torch.randn(4, 6)
    save_file({"tokens": tokens, "h_0": h, "c_0": c}, tmp_path / "given.safetensors")
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert json.loads(about["carried"]) == {"next_h_0": "h_0", "next_c_0": "c_0"}
    assert json.loads(about["start"]) == {"h_0": 0.0, "c_0": 0.0}
    found = load_file(tmp_path / "found.safetensors")
    with torch.no_grad():
        predicted = model.model(tokens, ((h, c),))
        logits, ((h_1, c_1),) = predicted.logits, predicted.state
    for name, wanted in {"logits": logits, "again": logits, "h": h_1, "c": c_1}.items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=1e-6)
