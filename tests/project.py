"""Where the project's files are, for tests that read or run them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "packages"
TEST_FOLDERS = (ROOT, *sorted(path.parent for path in PACKAGES.glob("*/tests")))
"""The folders whose `tests` are one namespace."""
TEST_PATH = os.pathsep.join(map(str, TEST_FOLDERS))
"""PYTHONPATH of a process that imports modules of tests."""


def path_of_tests(file: str) -> Path:
    """A file of tests by its path below `tests`, in whichever package it is."""
    paths = [folder / "tests" / file for folder in TEST_FOLDERS]
    return next((path for path in paths if path.exists()), paths[0])
