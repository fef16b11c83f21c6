"""Diagram of the import graph, table of the packages, and the functions that docs/architecture.md
names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "milepost_net",
    "milepost",
    "milepost_testing",
    "milepost_aws",
    "milepost_client",
    "milepost_deposits",
    "milepost_notifications",
    "milepost_postingest",
)
"""The packages of this project, as they are imported, each after those that it stands on."""
PAGE = ROOT / "docs" / "architecture.md"
PUBLIC = "milepost"
ENTRY_POINTS = {"__main__"}
STEP = re.compile(r"\| `([\w.]+)` \| \[[^\]]+\]\(\.\./(packages/[\w/-]+\.py)\) \|")
Edges = dict[str, set[str]]


def architecture_parts() -> dict[str, str]:
    """The generated parts of docs/architecture.md: the diagram of the import graph, and the table
    of packages."""
    return {"imports": diagram(PUBLIC), "packages": package_table()}


def diagram(package: str) -> str:
    """Mermaid flowchart of the members of a package. An arrow means "imports"; arrows that follow
    from others are left out."""
    edges = reduced(imports_between_members(package))
    nodes = sorted({*edges, *(target for targets in edges.values() for target in targets)})
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {node_id(node)}["{label(package, node)}"]' for node in nodes]
    lines += [
        f"    {node_id(source)} --> {node_id(target)}"
        for source in sorted(edges)
        for target in sorted(edges[source])
    ]
    return "\n".join([*lines, "```"])


def label(package: str, member: str) -> str:
    if member == PUBLIC:
        return "milepost: the public names"
    path = source_of(PUBLIC).joinpath(*package.split(".")[1:], member)
    return f"{member}/" if path.is_dir() else f"{member}.py"


def node_id(member: str) -> str:
    return f"m_{member}"


def imports_between_members(package: str) -> Edges:
    """Which direct members of the package import which others, found in the import statements of
    all their modules.

    A member imports the root for its version number alone; such an import is left out."""
    graph = import_graph()
    edges: Edges = {}
    for module in graph.modules:
        source = member_of(module, package)
        if source is None or source in ENTRY_POINTS:
            continue
        edges.setdefault(source, set())
        for imported in graph.find_modules_directly_imported_by(module):
            target = member_of(imported, package)
            if target is not None and target != source:
                edges[source].add(target)
    for targets in edges.values():
        targets.discard(PUBLIC)
    return edges


def member_of(module: str, package: str) -> str | None:
    """The direct member of the package that a module belongs to. The root is a member of itself: it
    holds the public names."""
    if module == package:
        return PUBLIC if package == PUBLIC else None
    if not module.startswith(f"{package}."):
        return None
    return module.removeprefix(f"{package}.").partition(".")[0]


@cache
def import_graph() -> grimp.ImportGraph:
    """Imports at run time. Those of the root are made on first use, so its block for type checkers
    is taken for them."""
    graph = grimp.build_graph("milepost", exclude_type_checking_imports=True, cache_dir=None)
    typed = grimp.build_graph("milepost", cache_dir=None)
    for imported in typed.find_modules_directly_imported_by(PUBLIC):
        graph.add_import(importer=PUBLIC, imported=imported)
    return graph


def reduced(edges: Edges) -> Edges:
    """The same order with the fewest arrows: an arrow is left out if a longer way leads to the same
    member. There is no cycle."""
    if cyclic := sorted(
        member for member, targets in edges.items() if member in reached(edges, targets)
    ):
        raise SystemExit(
            f"tools/architecture.py: these import each other in a cycle: {', '.join(cyclic)}"
        )
    return {
        source: {target for target in targets if target not in reached(edges, targets - {target})}
        for source, targets in edges.items()
    }


def reached(edges: Edges, starts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    rest = list(starts)
    while rest:
        member = rest.pop()
        if member not in found:
            found.add(member)
            rest += edges.get(member, ())
    return found


def source_of(package: str) -> Path:
    """The folder with the modules of a package."""
    return ROOT / "packages" / package.replace("_", "-") / "src" / package


def package_table() -> str:
    """For each package its top modules and its folders, each with the first sentence of its
    docstring."""
    return "\n\n".join(
        f"### {name.replace('_', '-')}\n\n{first_sentence(source_of(name) / '__init__.py')}.\n\n{_modules_of(name)}"
        for name in PACKAGES
    )


def _modules_of(package: str) -> str:
    root = source_of(package)
    modules = [
        path for path in sorted(root.glob("*.py")) if path.stem not in {"__init__", *ENTRY_POINTS}
    ]
    folders = [path for path in sorted(root.glob("**/__init__.py")) if path.parent != root]
    lines = ["| module or folder | what it holds |", "|---|---|"]
    for path in [*modules, *folders]:
        member = path.parent if path.name == "__init__.py" else path
        lines.append(
            f"| [`{member.relative_to(root).as_posix()}`](../{member.relative_to(ROOT).as_posix()}) | {first_sentence(path)} |"
        )
    return "\n".join(lines)


def first_sentence(path: Path) -> str:
    text = " ".join(
        (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        .split("\n\n")[0]
        .split()
    )
    if not text:
        raise SystemExit(f"{path.relative_to(ROOT)}: say in a docstring what it holds")
    return re.split(r"(?<=[.!?]) ", text)[0].removesuffix(".").replace("|", "\\|")


def steps(page: str) -> list[tuple[str, str]]:
    """The functions that a page walks through, as (qualified name, file)."""
    return [(match[1], match[2]) for match in STEP.finditer(page)]


def missing_steps(page: str) -> list[str]:
    """A sentence for each function that a page names and its file does not define."""
    return [
        f"there is no {name} in {file}"
        for name, file in steps(page)
        if name not in functions_in(ROOT / file)
    ]


def functions_in(path: Path) -> set[str]:
    """Qualified names of the functions and methods that a file defines."""
    if not path.exists():
        return set()
    found: set[str] = set()

    def look_in(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.add(prefix + child.name)
            elif isinstance(child, ast.ClassDef):
                look_in(child, f"{prefix}{child.name}.")

    look_in(ast.parse(path.read_text(encoding="utf-8")), "")
    return found
