"""The public names of the client: each can be imported, and type checkers see the same as the
interpreter."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import milepost_client as client

TREE = ast.parse(Path(client.__file__).read_text(encoding="utf-8"))


def test_every_public_name_is_there_and_no_other() -> None:
    assert [name for name in client.__all__ if getattr(client, name, None) is None] == []
    assert set(client.__all__) <= set(dir(client))
    with pytest.raises(AttributeError, match="Fax"):
        client.Fax  # noqa: B018


def test_names_that_are_imported_late_come_from_where_type_checkers_look() -> None:
    [block] = [
        node
        for node in TREE.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    said = {
        node.module: {name.name for name in node.names}
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert said == {
        f"milepost_client.{module}": set(names) for module, names in client._HOMES.items()
    }
