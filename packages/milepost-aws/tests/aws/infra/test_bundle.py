"""The package of the functions: compiled once, for their Python version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from milepost_aws.infra.bundle import compiled, fitting_python, packages_of

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
CHILD = "import package.part; print(package.part.ANSWER, package.part.__cached__)"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "part.py").write_text(
        "ANSWER = 'first'\n\n\ndef ask():\n    return ANSWER\n"
    )
    return tmp_path


def told(code: Path) -> list[str]:
    """What a process says that cannot write where its code is, as on Lambda."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", CHILD],
        cwd=code,
        env=bare,
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.split()


def test_what_is_compiled_is_used_whatever_packing_made_of_the_times(code: Path) -> None:
    assert compiled(code, sys.executable)
    source = code / "package" / "part.py"
    # Had it been compiled again, it would be seen.
    source.write_text(source.read_text().replace("first", "second, and longer"))
    os.utime(source, (315_532_800, 315_532_800))
    answer, cached = told(code)
    assert answer == "first"
    assert Path(cached).parent == code / "package" / "__pycache__"


def test_the_same_code_makes_the_same_package_wherever_it_is_compiled(
    code: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = shutil.copytree(code, tmp_path_factory.mktemp("elsewhere") / "code")
    assert compiled(code, sys.executable)
    assert compiled(other, sys.executable)
    made = {path.relative_to(code): path.read_bytes() for path in code.rglob("*.pyc")}
    assert len(made) == 2
    assert made == {path.relative_to(other): path.read_bytes() for path in other.rglob("*.pyc")}


def test_a_file_that_cannot_be_compiled_hinders_no_other(
    code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (code / "package" / "old.py").write_text("print 'as it once was'\n")
    assert not compiled(code, sys.executable)
    assert "old.py" in capfd.readouterr().out
    assert told(code)[0] == "first"
    assert list((code / "package" / "__pycache__").glob("part.*.pyc"))


def test_only_a_python_that_fits_compiles(tmp_path: Path) -> None:
    sham = tmp_path / "python9.9"
    sham.write_text("#!/bin/sh\necho not installed >&2\nexit 127\n")
    sham.chmod(0o755)
    assert (
        fitting_python([str(sham), str(tmp_path / "nowhere"), sys.executable], HERE)
        == sys.executable
    )
    assert fitting_python([str(sham), sys.executable], "9.9") is None


def test_functions_get_the_packages_that_they_need_and_no_other() -> None:
    def names(applications: list[str]) -> list[str]:
        return [Path(source).name for source in packages_of(applications)]

    assert names([]) == ["milepost-net", "milepost", "milepost-aws[lambda]"]
    assert names(["deposits"]) == [
        "milepost-net",
        "milepost",
        "milepost-aws[lambda]",
        "milepost-deposits",
    ]
    assert names(["notifications"]) == [
        "milepost-net", "milepost[http]", "milepost-aws[lambda]", "milepost-notifications", "milepost-client",
    ]  # fmt: skip


def test_a_package_comes_from_the_folder_that_it_runs_from() -> None:
    assert [Path(source).is_dir() for source in packages_of([])[:2]] == [True, True]
