"""A wheel and a source distribution, each built and tried in an environment of its own: what a stranger installs.

python .ci/packages.py            both; the wheel's native core is asked for where the system can have one
python .ci/packages.py --no-deps  with the packages of this Python in the place of new ones: quick, no network
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMOKE = """
import recur, torch
from recur.ops.cpu import library
assert "site-packages" in recur.__file__ or "target" in recur.__file__, recur.__file__
print("recur", recur.__version__, "of", recur.__file__)
print("native core:", library.missing_reason() or "there")
net = recur.Recurrent("gru", 8, 16)
found = net(torch.randn(2, 5, 8), trace=True)
found.outputs.sum().backward()
print("backend:", found.trace[0].backend)
model = recur.fit("pydoc", task="language", steps=2, hidden_size=16, baseline=False)
print("wrote:", repr(model.generate("The ", length=12, seed=1)[0]))
"""


def run(*command: object, cwd: Path | None = None) -> str:
    print("+", *command, flush=True)
    done = subprocess.run([str(part) for part in command], cwd=cwd, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


def python_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def installed(wheel: Path, here: Path, own: bool) -> None:
    """A new environment with the wheel and nothing of this folder, and what it can do."""
    venv.create(here, with_pip=own, system_site_packages=False)
    python = python_of(here)
    if own:
        run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    else:
        target = next(here.glob("lib/python*/site-packages"))
        others = [path for path in sys.path if path.endswith("site-packages")]
        (target / "others.pth").write_text("\n".join(others))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    print(run(python, "-I", "-c", SMOKE, cwd=here))
    print(run(python, "-I", "-m", "recur", "--version", cwd=here))


def builder(here: Path) -> Path:
    """A Python with what pyproject.toml asks for to build: this one's setuptools may be older."""
    venv.create(here, with_pip=True)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    run(python_of(here), "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *wanted)
    return python_of(here)


def main() -> None:
    own = "--no-deps" not in sys.argv
    isolated = [] if own else ["--no-build-isolation"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        # From a copy of what git has: a build in place would find what is lying about.
        run("git", "clone", "-q", ROOT, here / "clone")
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *isolated, "-w", here, here / "clone")
        (wheel,) = here.glob("recur-*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        cores = [name for name in names if name.startswith("recur/ops/cpu/_core")]
        print(f"{wheel.name}: {len(names)} files, native core: {cores}")
        assert cores or sys.platform == "win32", "the wheel has no native core"
        assert "-abi3-" in wheel.name, "one wheel serves every Python from 3.11 on"
        assert not any(name.endswith((".cpp", ".h")) for name in names), "sources do not belong into a wheel"
        installed(wheel, here / "from-wheel", own)
        code = "from setuptools.build_meta import build_sdist; print(build_sdist('..'))"
        run(builder(here / "builder") if own else sys.executable, "-c", code, cwd=here / "clone")
        (source,) = here.glob("recur-*.tar.gz")
        (here / "again").mkdir()
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *isolated, "-w", here / "again", source)
        (again,) = (here / "again").glob("recur-*.whl")
        assert sorted(zipfile.ZipFile(again).namelist()) == sorted(names), "the source distribution lacks something"
        print(f"{source.name} builds the same files")


if __name__ == "__main__":
    main()
