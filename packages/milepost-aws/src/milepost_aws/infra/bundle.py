"""Code of the functions: milepost, its dependencies on AWS, and the route files, in one folder.

python -m milepost_aws.infra.bundle --routes FILE.py --out build/code
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from milepost.core.errors import ConfigMistake, MilepostError
from milepost.route_files import load_application
from milepost_aws.infra.app import DEFAULT_CODE, is_file
from milepost_aws.infra.settings import PYTHON

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = ("--platform", "manylinux2014_aarch64", "--implementation", "cp", "--python-version", PYTHON, "--only-binary=:all:")
"""The platform of the functions: arm64, whatever this machine is."""
TASK_ROOT = "/var/task"
"""Where the code is on Lambda."""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        if not asked.routes and not asked.application:
            raise ConfigMistake("no route is named; give --routes FILE.py, or --application NAME")
        files = route_files([*asked.routes, *asked.application])
        out = Path(asked.out)
        _emptied(out)
        extras = ["aws", "lambda", *(["http"] if any(load_application(spec).configured().accepting for spec in asked.application) else [])]
        _install(out, extras, asked.requirement)
        copy_routes(files, [Path(path) for path in asked.include], out / "routes")
        python = fitting_python([asked.python] if asked.python else [sys.executable, f"python{PYTHON}"])
        if python is None:
            print(
                f"milepost_aws.infra.bundle: nothing is compiled, so every cold start compiles: there is no Python {PYTHON} here;"
                " install it, or name it with --python",
                file=sys.stderr,
            )
        elif not compiled(out, python):
            print("milepost_aws.infra.bundle: the files named above cannot be compiled; all others are", file=sys.stderr)
    except MilepostError as error:
        print(f"milepost_aws.infra.bundle: {error}", file=sys.stderr)
        return 2
    print(out)
    return 0


def route_files(specs: Sequence[str]) -> list[Path]:
    """The files among the given routes; all are copied into one folder, so no two may have the same name."""
    found: dict[str, Path] = {}
    for spec in specs:
        place = spec.partition(":")[0]
        if not is_file(place):
            continue
        path = Path(place).resolve()
        if not path.is_file():
            raise ConfigMistake(f"there is no route file {place}")
        if found.setdefault(path.name, path) != path:
            raise ConfigMistake(f"two route files are called {path.name}; rename one of them")
    return list(found.values())


def copy_routes(files: Sequence[Path], include: Sequence[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy2(path, folder / path.name)
    for path in include:
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy2(path, folder / path.name)
        else:
            raise ConfigMistake(f"there is no {path} to be included")


def fitting_python(candidates: Sequence[str], version: str = PYTHON) -> str | None:
    """The first of them with this version: no other can compile for the functions' Python."""
    tell = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        found = shutil.which(candidate)
        # The program found may be a placeholder for a version that is not installed.
        if found and subprocess.run([found, "-c", tell], check=False, capture_output=True, text=True).stdout.strip() == version:
            return found
    return None


def compiled(folder: Path, python: str) -> bool:
    """Compile everything once, here: on Lambda the folder is read-only, and each cold start would compile all that it imports.
    Source times are not compared, since packing changes them; and no path of this machine is included, so that the same code always
    makes the same package. False: some files cannot be compiled."""
    how = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", TASK_ROOT)
    return subprocess.run([python, *how, str(folder)], check=False).returncode == 0


def _emptied(out: Path) -> None:
    """Empty a folder that this command made; any other folder is refused."""
    if out.exists() and any(out.iterdir()) and not (out / "milepost").is_dir():
        raise ConfigMistake(f"{out} holds something that is not the functions' code; name another folder with --out")
    shutil.rmtree(out, ignore_errors=True)


def _install(out: Path, extras: Sequence[str], requirements: Sequence[str]) -> None:
    # Leftovers of an earlier build would be packed again, including removed modules.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    wanted = [f"{ROOT}[{','.join(extras)}]", *(part for path in requirements for part in ("--requirement", path))]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if subprocess.run([*pip, "--target", str(out), *PLATFORM, *wanted], check=False).returncode:
        raise ConfigMistake("pip could not install the functions' dependencies; see its message above")
    # Commands are useless there, and name this machine's Python.
    shutil.rmtree(out / "bin", ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m milepost_aws.infra.bundle", description="Make the folder with the functions' code.")
    parser.add_argument(
        "--application", action="append", default=[], metavar="NAME|FILE.py", help="an application; its file is included; may be repeated"
    )
    parser.add_argument(
        "--routes", action="append", default=[], metavar="FILE.py[:NAME]", help="as for python -m milepost_aws.infra; may be repeated"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATH", help="what the route files import: files or folders beside them"
    )
    parser.add_argument(
        "--requirement", action="append", default=[], metavar="FILE", help="what else they need, as a pip requirements file"
    )
    parser.add_argument("--python", metavar="PATH", help=f"a Python {PYTHON} of this machine, to compile with [python{PYTHON}]")
    parser.add_argument("--out", default=DEFAULT_CODE, metavar="FOLDER", help=f"where to write [{DEFAULT_CODE}]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
