"""CompiledKernel kernels on disk: whole or not at all, made again where damaged, and never a reason to stop."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from recur.cells import make_cell
from recur.compiler.programs import text_of
from recur.errors import BackendError
from recur.ops.cuda import nvrtc
from recur.ops.cuda.codegen import kernel_source
from recur.ops.cuda.nvrtc import CompiledKernel, ResourceUsage


class Counting:
    """In the compiler's place: its cubin says what it was made of."""

    version = "13.0"

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def compile(self, source: str, architecture: str) -> CompiledKernel:
        self.made.append((source, architecture))
        return CompiledKernel(f"{architecture}: {source}\n".encode() * 100, {"kernel": ResourceUsage(40, 128, 0, 0)})


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    made = Counting()
    monkeypatch.setattr(nvrtc, "load_compiler", lambda: made)
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "kernels"))
    nvrtc._warn_once.cache_clear()
    yield made
    nvrtc._warn_once.cache_clear()


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "kernels").iterdir())


def test_a_kernel_is_made_once(compiler: Counting, tmp_path: Path) -> None:
    first, again = (nvrtc.compile_cached("text", "sm_90a") for _ in range(2))
    assert first == again
    assert again.usage["kernel"].shared == 128
    assert len(compiler.made) == 1
    (path,) = kept(tmp_path)
    assert path.suffix == ".cubin"
    assert path.parent.stat().st_mode & 0o077 == 0, "for its owner alone: it is code"


def test_what_a_kernel_was_made_of_is_its_name(compiler: Counting, tmp_path: Path) -> None:
    cell = text_of(make_cell("lstm"), True)
    for text in (
        kernel_source(cell, torch.float32, ("step",)),
        kernel_source(cell, torch.float16, ("step",)),
        "another",
    ):
        for architecture in ("sm_80", "sm_90a"):
            nvrtc.compile_cached(text, architecture)
    assert len(compiler.made) == len(kept(tmp_path)) == 6
    compiler.version = "13.1"  # type: ignore[misc]
    nvrtc.compile_cached("another", "sm_80")
    assert len(kept(tmp_path)) == 7


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "of another format", "longer"])
def test_a_damaged_file_is_made_again(damage: str, compiler: Counting, tmp_path: Path) -> None:
    whole = nvrtc.compile_cached("text", "sm_90a")
    (path,) = kept(tmp_path)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "empty": b"",
            "short": content[:middle],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "of another format": content.replace(b"recur-cubin-1", b"recur-cubin-0"),
            "longer": content + b"x",
        }[damage]
    )
    assert nvrtc.compile_cached("text", "sm_90a") == whole
    assert len(compiler.made) == 2
    assert path.read_bytes() == content


def test_a_write_that_fails_half_way_leaves_nothing(
    compiler: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="cannot be kept in .*kernels: No space left on device; set RECUR_CACHE"):
        made = nvrtc.compile_cached("text", "sm_90a")
    assert made.cubin.startswith(b"sm_90a: text")
    assert kept(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_said_once(
    compiler: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "file" / "kernels"))
    with pytest.warns(UserWarning, match="compiled kernels cannot be kept in .*: Not a directory") as said:
        nvrtc.compile_cached("text", "sm_90a")
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nvrtc.compile_cached("more", "sm_90a")
    assert len(compiler.made) == 2


def test_where_kernels_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path))
    assert nvrtc.cache_folder() == tmp_path
    monkeypatch.delenv("RECUR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert nvrtc.cache_folder() == tmp_path / "recur" / "cuda"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert nvrtc.cache_folder() == tmp_path / ".cache" / "recur" / "cuda"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_load", lambda: "libnvrtc was not found: nowhere")
    with pytest.raises(BackendError, match="backend 'cuda' has no compiler: libnvrtc was not found: nowhere"):
        nvrtc.compile_cached("text", "sm_90a")
