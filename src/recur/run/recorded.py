"""The files of a run and their digests: what is read is what was written, whenever its writer may have ended."""

from __future__ import annotations

from pathlib import Path

from recur.errors import RunError
from recur.run import manifest as manifests
from recur.run.logs import MOST as MOST_JSON
from recur.run.manifest import Manifest, sha256
from recur.run.place import Place


class Recorded:
    """A folder whose manifest knows its files."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.place, self.manifest = path, Place(path), manifest

    def read(self, name: str, most: int = MOST_JSON) -> bytes:
        """The content of a file as it was written; another one is refused."""
        while True:
            try:
                content = self.place.read(name, most)
            except FileNotFoundError:
                raise RunError(f"{self.path / name} is missing; put it back") from None
            if sha256(content) in self.manifest.files.get(name, ()):
                return content
            known, self.manifest = self.manifest, read_manifest(self.place)
            if self.manifest == known:  # else whoever trains it has replaced the file since the manifest was read
                break
        raise self._changed(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file anew. One that is there has both digests in the manifest until the next commit; a new one is the
        run's with that."""
        known = self.manifest.files.get(name, [])[-1:]
        if known:
            self.manifest.files[name] = [*known, sha256(content)]
            self._write_manifest()
        self.place.write(name, content)
        self.manifest.files[name] = [*known, sha256(content)]

    def commit(self) -> None:
        """What was written is now what the run is."""
        self.manifest.files = {name: digests[-1:] for name, digests in self.manifest.files.items()}
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.place.write(manifests.NAME, self.manifest.to_json())

    def check_files(self) -> None:
        """Before a run is trained on: the best weights too, for they stay if nothing better comes."""
        self.place.sweep("resume")
        for name in list(self.manifest.files):
            # Of a file that was being replaced, the digest that it has: the next commit keeps one.
            digest = self._digest(name)
            if digest not in self.manifest.files[name]:
                raise self._changed(name)
            self.manifest.files[name] = [digest]

    def _digest(self, name: str) -> str:
        try:
            return self.place.digest(name)
        except FileNotFoundError:
            raise RunError(f"{self.path / name} is missing; put it back") from None

    def _changed(self, name: str) -> RunError:
        return RunError(f"{self.path / name} is not what this run wrote: it was changed or damaged since; put it back")


def read_manifest(place: Place) -> Manifest:
    name = str(place.path / manifests.NAME)
    try:
        return Manifest.from_json(place.read(manifests.NAME, MOST_JSON), name)
    except FileNotFoundError:
        raise RunError(f"{name} is missing") from None
