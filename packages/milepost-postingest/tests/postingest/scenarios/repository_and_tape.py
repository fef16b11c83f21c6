"""A repository and a tape library for whole journeys of an asset: real files, with names as
archives have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.postingest.ocfl.ocfl_scene import ASSET, hashed
from tests.postingest.ocfl.ocfl_scene import Scene as Repository
from tests.postingest.tape_scene import Scene as Library
from tests.postingest.tape_scene import scene_of

from milepost_postingest.custodial_copy import CustodialCopy
from milepost_postingest.tape import Tape

PAYLOAD = {"preservationSystemId": ASSET}
FOLDER = "Preservation_1/7f1b7a2c-4d5e-4f60-8a9b-0c1d2e3f4a5b/original/g1"
SCRIPTS = [
    "Übergröße & Co/naïve cafe\u0301.txt",
    "日本語/№ 7 – “Ω”.tif",
    "Архив/مرحبا/🗄️ 50%+?.tiff",
]
"""Names in scripts that every hop must keep, to the code point."""


def long_names(number: int) -> list[str]:
    """Names of so many files whose paths in the repository have about 350 bytes each."""
    return [f"{FOLDER}/{'a long title of a record ' * 8}{place:05}.tif" for place in range(number)]


class RepositoryAndTape:
    """An asset on disk, and what asks for it. Its files come to tape when `archive` is called."""

    def __init__(self, folder: Path, library: Library, names: Sequence[str]) -> None:
        repository = Repository(folder)
        repository.build({name: name for name in names})
        self.paths = sorted(f"{hashed(ASSET)}/v1/content/{name}" for name in names)
        self.library = library
        self.on_disk = CustodialCopy(repository.root)
        self.on_tape: Tape = library.tape

    def archive(self) -> dict[str, list[str]]:
        """All of its files are on tape now; the volumes."""
        for path in self.paths:
            self.library.standin.put(path, "L03721")
        return {path: ["L03721"] for path in self.paths}


@contextmanager
def whole(folder: Path, names: Sequence[str]) -> Iterator[RepositoryAndTape]:
    with scene_of() as library:
        yield RepositoryAndTape(folder, library, names)
