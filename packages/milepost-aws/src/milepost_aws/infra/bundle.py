"""Code of the functions: the packages of Milepost that they need, their dependencies, and the route
files, in one folder.

python -m milepost_aws.infra.bundle --routes FILE.py --out build/code
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distribution, requires
from pathlib import Path
from urllib.parse import unquote, urlsplit

from milepost.core.errors import ConfigMistake, MilepostError
from milepost.ports.extensions import APPLICATIONS, extension_points
from milepost.route_files import load_application
from milepost_aws.infra.app import DEFAULT_CODE, is_file
from milepost_aws.infra.settings import PYTHON

PLATFORM = (
    "--platform",
    "manylinux2014_aarch64",
    "--implementation",
    "cp",
    "--python-version",
    PYTHON,
    "--only-binary=:all:",
)
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
        _install(out, packages_of(asked.application), asked.requirement, asked.find_links)
        copy_routes(files, [Path(path) for path in asked.include], out / "routes")
        python = fitting_python(
            [asked.python] if asked.python else [sys.executable, f"python{PYTHON}"]
        )
        if python is None:
            print(
                f"milepost_aws.infra.bundle: nothing is compiled, so every cold start compiles: there is no Python {PYTHON} here;"
                " install it, or name it with --python",
                file=sys.stderr,
            )
        elif not compiled(out, python):
            print(
                "milepost_aws.infra.bundle: the files named above cannot be compiled; all others are",
                file=sys.stderr,
            )
    except MilepostError as error:
        print(f"milepost_aws.infra.bundle: {error}", file=sys.stderr)
        return 2
    print(out)
    return 0


def route_files(specs: Sequence[str]) -> list[Path]:
    """The files among the given routes; all are copied into one folder, so no two may have the same
    name."""
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
        if (
            found
            and subprocess.run(
                [found, "-c", tell], check=False, capture_output=True, text=True
            ).stdout.strip()
            == version
        ):
            return found
    return None


def compiled(folder: Path, python: str) -> bool:
    """Compile everything once, here: on Lambda the folder is read-only, and each cold start would
    compile all that it imports. Source times are not compared, since packing changes them; and no
    path of this machine is included, so that the same code always makes the same package. False:
    some files cannot be compiled."""
    how = (
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(folder),
        "-p",
        TASK_ROOT,
    )
    return subprocess.run([python, *how, str(folder)], check=False).returncode == 0


def _emptied(out: Path) -> None:
    """Empty a folder that this command made; any other folder is refused."""
    if out.exists() and any(out.iterdir()) and not (out / "milepost").is_dir():
        raise ConfigMistake(
            f"{out} holds something that is not the functions' code; name another folder with --out"
        )
    shutil.rmtree(out, ignore_errors=True)


def packages_of(applications: Sequence[str]) -> list[str]:
    """The packages of this project that functions with these applications need, as pip installs
    them: from the folder of an editable installation, else by name and version. Each is named, so
    that none is looked for elsewhere."""
    serves = any(load_application(spec).configured().accepting for spec in applications)
    wanted = {"milepost-net": "", "milepost": "http" if serves else "", "milepost-aws": "lambda"}
    for name in applications:
        wanted |= dict.fromkeys(_own_packages_of(name), "")
    return [
        f"{_source_of(name)}[{extra}]" if extra else _source_of(name)
        for name, extra in wanted.items()
    ]


def _own_packages_of(application: str) -> list[str]:
    """The package of an installed application and those of this project that it needs."""
    package = next(
        (
            point.dist.name
            for point in extension_points(APPLICATIONS)
            if point.name == application and point.dist
        ),
        None,
    )
    if package is None:
        return []
    required = [
        re.split(r"[^\w-]", text)[0] for text in requires(package) or () if "extra ==" not in text
    ]
    return [package, *(name for name in required if name.startswith("milepost-"))]


def _source_of(package: str) -> str:
    """Where pip gets a package from: the folder that an editable installation runs from, else its
    name and version."""
    installed = distribution(package)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return unquote(urlsplit(origin["url"]).path)
    return f"{package}=={installed.version}"


def _install(
    out: Path, packages: Sequence[str], requirements: Sequence[str], find_links: Sequence[str]
) -> None:
    wanted = [*packages, *(part for path in requirements for part in ("--requirement", path))]
    places = [part for path in find_links for part in ("--find-links", path)]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    if subprocess.run(
        [*pip, "--target", str(out), *PLATFORM, *places, *wanted], check=False
    ).returncode:
        raise ConfigMistake("pip could not install the functions' packages; see its message above")
    # Commands are useless there, and name this machine's Python.
    shutil.rmtree(out / "bin", ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m milepost_aws.infra.bundle",
        description="Make the folder with the functions' code.",
    )
    parser.add_argument(
        "--application",
        action="append",
        default=[],
        metavar="NAME|FILE.py",
        help="an application; its file is included; may be repeated",
    )
    parser.add_argument(
        "--routes",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="as for python -m milepost_aws.infra; may be repeated",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help="what the route files import: files or folders beside them",
    )
    parser.add_argument(
        "--requirement",
        action="append",
        default=[],
        metavar="FILE",
        help="what else they need, as a pip requirements file",
    )
    parser.add_argument(
        "--find-links",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with the wheels of Milepost, unless it runs from its source",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help=f"a Python {PYTHON} of this machine, to compile with [python{PYTHON}]",
    )
    parser.add_argument(
        "--out", default=DEFAULT_CODE, metavar="FOLDER", help=f"where to write [{DEFAULT_CODE}]"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
