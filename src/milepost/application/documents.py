"""Documents of an application: small named values that its processes share through the ledger, written conditionally."""

from __future__ import annotations

from typing import Any

import msgspec

from milepost.core.errors import UsageError
from milepost.engine.context import Context
from milepost.ports.documents import APPLICATION, Document

LARGEST = 200_000
"""Bytes of a document as JSON: it is stored as one value in every ledger."""
LONGEST_NAME = 200


class AppDocuments:
    """The documents of one application, by name. A value is any JSON value. Each write raises the document's version by one; a
    write that names the version it has read fails if another process has written meanwhile."""

    def __init__(self, context: Context, application: str, kind: str = APPLICATION) -> None:
        self._context, self._prefix, self._kind = context, f"{application}/", kind

    def get(self, name: str) -> Document | None:
        """The document with its version; None: there is none."""
        return self._context.ledger.read_one(self._kind, self._prefix + name)

    def find(self, prefix: str = "") -> dict[str, Document]:
        """All documents whose names begin with this, by name. All documents of all applications are read: keep them few."""
        found = self._context.ledger.read(self._kind)
        start = self._prefix + prefix
        return {name.removeprefix(self._prefix): found[name] for name in sorted(found) if name.startswith(start)}

    def put(self, name: str, value: Any, expect: int | None = None) -> bool:
        """Write a document. `expect` is the version that it must have now, 0 if it must not exist; False: it has another one."""
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise UsageError(f"invalid name of a document {name!r}; use printable text of at most {LONGEST_NAME} characters")
        size = len(msgspec.json.encode(value))
        if size > LARGEST:
            raise UsageError(f"the document {name!r} has {size:,} bytes; at most {LARGEST:,} are kept in one")
        return self._context.ledger.write(self._kind, self._prefix + name, value, expect=expect)

    def remove(self, name: str, expect: int | None = None) -> bool:
        """Remove a document. False: there is none, or it has another version than `expect`."""
        held = self.get(name)
        if held is None or (expect is not None and held.version != expect):
            return False
        return self._context.ledger.write(self._kind, self._prefix + name, None, expect=held.version)
