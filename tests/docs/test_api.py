"""Every public name has a docstring with an example, and the examples are run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import recur
from docs.maker import api
from tests.docs.samples import write_files

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def documented() -> Iterator[tuple[str, str, Any]]:
    """Classes and functions, once each, by where they are defined."""
    seen = set()
    for module in api.MODULES:
        for name, value in api.public_names(module):
            if (inspect.isroutine(value) or isinstance(value, type)) and value is not tuple and id(value) not in seen:
                seen.add(id(value))
                yield module, name, value


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_files(folder)
    return folder


@pytest.mark.parametrize("module", api.MODULES)
def test_every_public_name_has_an_example_that_runs(module: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    torch.set_num_threads(1)
    finder, printed = doctest.DocTestParser(), []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for home, name, value in documented():
        if home != module:
            continue
        text = inspect.cleandoc(value.__doc__ or "")
        assert not (text or f"{name}(").startswith(f"{name}("), f"{module}.{name} has no docstring"
        assert ">>> " in text, f"{module}.{name} has no example"
        torch.manual_seed(0)
        names = {"recur": recur, "torch": torch, "np": np, name: value}
        runner.run(finder.get_doctest(text, names, f"{module}.{name}", None, 0), out=printed.append)
    found = importlib.import_module(module)
    names = {"recur": recur, "torch": torch, "np": np}
    runner.run(finder.get_doctest(found.__doc__ or "", names, module, None, 0), out=printed.append)
    assert not runner.failures, "".join(printed)


def test_help_leads_to_every_public_module() -> None:
    text = recur.__doc__ or ""
    for module in api.MODULES:
        assert module in text or module.rpartition(".")[0] in text, module
        assert sorted(importlib.import_module(module).__all__), module
    assert "python -m docs" in text


def test_a_page_names_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in api.MODULES:
        text = api.page(module)
        assert not re.search(r"^### \w+\._|ForwardRef|:class:", text, flags=re.M), module
        for name in importlib.import_module(module).__all__:
            if not isinstance(getattr(importlib.import_module(module), name), ModuleType):
                assert f"## {name}\n" in text, (module, name)
