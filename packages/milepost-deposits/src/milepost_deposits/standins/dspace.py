"""A stand-in DSpace 7 server that speaks real HTTP, for tests, demonstrations and the docs.

    python -m milepost_deposits.standins.dspace --port 9103

It checks CSRF tokens and logins, refuses what DSpace refuses, indexes items late, and can be set to
misbehave (see HttpStandIn).
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import md5
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from milepost_testing.http_standin import HttpStandIn, StandInAnswer, StandInRequest, serve

USER, PASSWORD = "deposits@example.org", "deposits"
COLLECTION = "123456789/2"
LOGIN_S = 1800.0
REGISTRY = re.compile(r"(dc|mit|dcterms|local)\.[a-z]+(\.[a-zA-Z]+)?")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(r"[a-z0-9]+")
_PARAMETER = re.compile(r'(name|filename)="([^"]*)"')


@dataclass
class StandInFile:
    name: str
    content: bytes
    uuid: str = field(default_factory=lambda: str(uuid4()))

    def view(self) -> dict[str, Any]:
        checksum = {
            "checkSumAlgorithm": "MD5",
            "value": md5(self.content, usedforsecurity=False).hexdigest(),
        }
        return {
            "uuid": self.uuid,
            "name": self.name,
            "sizeBytes": len(self.content),
            "checkSum": checksum,
            "type": "bitstream",
        }


@dataclass
class StandInItem:
    """An item; `searchable_at` is when the index has it."""

    handle: str
    collection: str
    metadata: dict[str, Any]
    discoverable: bool
    searchable_at: float
    last_modified: str
    withdrawn: bool = False
    uuid: str = field(default_factory=lambda: str(uuid4()))
    bundles: dict[str, tuple[str, list[StandInFile]]] = field(default_factory=dict)
    """By name: UUID and files."""

    @property
    def files(self) -> list[StandInFile]:
        return [file for _, files in self.bundles.values() for file in files]

    def add_file(self, name: str, content: bytes) -> StandInFile:
        """Add a file to the bundle ORIGINAL, as the program of another does."""
        file = StandInFile(name, content)
        self.bundles.setdefault("ORIGINAL", (str(uuid4()), []))[1].append(file)
        return file

    def values(self, name: str) -> list[str]:
        return [entry["value"] for entry in self.metadata.get(name, ())]

    def view(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "handle": self.handle,
            "name": next(iter(self.values("dc.title")), ""),
            "metadata": self.metadata,
            "inArchive": True,
            "discoverable": self.discoverable,
            "withdrawn": self.withdrawn,
            "lastModified": self.last_modified,
            "type": "item",
        }


class DSpaceStandIn(HttpStandIn):
    """`with DSpaceStandIn() as dspace:` is a server at `dspace.url` with one collection.
    `index_lag` is how many seconds of `clock` pass before a search finds an item. `login_s` is how
    long a login is valid."""

    def __init__(
        self,
        *,
        port: int = 0,
        collection: str = COLLECTION,
        user: str = USER,
        password: str = PASSWORD,
        index_lag: float = 0.0,
        login_s: float = LOGIN_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(port=port)
        self.user, self.password = user, password
        self.index_lag, self.login_s, self.clock = index_lag, login_s, clock
        self.items: dict[str, StandInItem] = {}
        self.collections = {collection: str(uuid4())}
        self.wrong_checksum = False
        """Answer uploads with a checksum that is not that of the file."""
        self._tokens: set[str] = set()
        self._logins: dict[str, float] = {}
        self._handles = 100

    @property
    def url(self) -> str:
        """The base of the server, as [deposits.submit] dspace has it."""
        return f"{self.origin}/server"

    # What a test looks at and changes -------------------------------------------------------------
    def having(self, doi: str) -> list[StandInItem]:
        """The items whose metadata names this DOI, exactly and in any form."""
        wanted = doi.lower()
        found = []
        with self.lock:
            for item in self.items.values():
                values = (value for name in item.metadata for value in item.values(name))
                if any(
                    value.lower() == wanted or value.lower().endswith(f"doi.org/{wanted}")
                    for value in values
                ):
                    found.append(item)
        return found

    def put(self, metadata: dict[str, Any], *, discoverable: bool = True) -> StandInItem:
        """An item, as the program of another made it; the index has it at once."""
        with self.lock:
            item = self._new_item(next(iter(self.collections.values())), metadata, discoverable)
            item.searchable_at = self.clock()
            return item

    def rotate_token(self) -> None:
        """Make every CSRF token that was given out invalid."""
        with self.lock:
            self._tokens.clear()

    def end_logins(self) -> None:
        """Make every login invalid, as a logout elsewhere does."""
        with self.lock:
            self._logins.clear()

    # Requests -------------------------------------------------------------------------------------
    def answer(self, request: StandInRequest) -> StandInAnswer:
        path = request.path.removeprefix("/server/api")
        if path == request.path:
            return _problem(404, "no such page", request.path)
        if path == "/security/csrf":
            return self._with_token(StandInAnswer(204))
        if request.method != "GET" and not self._token_fits(request):
            return self._with_token(
                _problem(403, "Access is denied. Invalid CSRF token.", request.path)
            )
        if path == "/authn/login" and request.method == "POST":
            return self._log_in(request)
        if path == "/authn/status":
            return StandInAnswer(200, {"authenticated": self._logged_in(request), "okay": True})
        for method, pattern, act in _ROUTES:
            if method == request.method and (found := re.fullmatch(pattern, path)):
                if method != "GET" and not self._logged_in(request):
                    return _problem(401, "Authentication is required", request.path)
                answer: StandInAnswer = act(self, request, *found.groups())
                return answer
        return _problem(404, "no such endpoint", request.path)

    def _token_fits(self, request: StandInRequest) -> bool:
        cookies = dict(
            part.strip().partition("=")[::2]
            for part in (request.headers.get("Cookie") or "").split(";")
        )
        token = request.headers.get("X-XSRF-TOKEN")
        return token == cookies.get("DSPACE-XSRF-COOKIE") and token in self._tokens

    def _with_token(self, answer: StandInAnswer) -> StandInAnswer:
        token = secrets.token_hex(8)
        self._tokens.add(token)
        headers = (
            ("DSPACE-XSRF-TOKEN", token),
            ("Set-Cookie", f"DSPACE-XSRF-COOKIE={token}; Path=/server; HttpOnly"),
        )
        return StandInAnswer(answer.status, answer.content, (*answer.headers, *headers))

    def _log_in(self, request: StandInRequest) -> StandInAnswer:
        """A login with user and password, or a renewal with a valid login and no body."""
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        renews = not form and self._logged_in(request)
        if not renews and (form.get("user"), form.get("password")) != (self.user, self.password):
            return _problem(401, "Authentication failed", request.path)
        expires = self.clock() + self.login_s
        claims = (
            base64.urlsafe_b64encode(
                json.dumps({"exp": int(expires), "id": secrets.token_hex(4)}).encode()
            )
            .decode()
            .rstrip("=")
        )
        bearer = f"Bearer e30.{claims}.c3RhbmRpbg"
        self._logins[bearer] = expires
        return self._with_token(StandInAnswer(200, None, (("Authorization", bearer),)))

    def _logged_in(self, request: StandInRequest) -> bool:
        return self._logins.get(request.headers.get("Authorization") or "", 0.0) > self.clock()

    # Endpoints ------------------------------------------------------------------------------------
    def _find_handle(self, request: StandInRequest) -> StandInAnswer:
        wanted = request.query.get("id", "")
        if wanted in self.collections:
            place = f"/core/collections/{self.collections[wanted]}"
        elif item := next((one for one in self.items.values() if one.handle == wanted), None):
            place = f"/core/items/{item.uuid}"
        else:
            return _problem(404, "no object with this identifier", request.path)
        # As behind a proxy that is not set up for it: scheme and host are wrong.
        return StandInAnswer(
            302, None, (("Location", f"http://internal.invalid:8080/server/api{place}"),)
        )

    def _get_collection(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        for handle, known in self.collections.items():
            if known == uuid:
                return StandInAnswer(
                    200, {"uuid": uuid, "handle": handle, "type": "collection", "name": "Articles"}
                )
        return _problem(404, "no such collection", request.path)

    def _create(self, request: StandInRequest) -> StandInAnswer:
        collection = request.query.get("owningCollection", "")
        if collection not in self.collections.values():
            return _problem(400, "The owning collection does not exist", request.path)
        try:
            content = json.loads(request.body)
            metadata = content["metadata"]
            assert isinstance(metadata, dict)
        except (ValueError, TypeError, KeyError, AssertionError):
            return _problem(422, "Unparseable request body", request.path)
        if content.get("inArchive") is not True:
            return _problem(
                400, "InArchive attribute should not be set to false for the create", request.path
            )
        if any(REGISTRY.fullmatch(name) is None for name in metadata):
            return _problem(500, "An exception has occurred", request.path)
        item = self._new_item(collection, metadata, content.get("discoverable") is True)
        return StandInAnswer(201, item.view())

    def _new_item(
        self, collection: str, metadata: dict[str, Any], discoverable: bool
    ) -> StandInItem:
        self._handles += 1
        handle = f"{next(iter(self.collections)).partition('/')[0]}/{self._handles}"
        now = self.clock()
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+00:00")
        uri = [{"value": f"http://hdl.handle.net/{handle}", "language": None}]
        item = StandInItem(
            handle,
            collection,
            {**metadata, "dc.identifier.uri": uri},
            discoverable,
            now + self.index_lag,
            stamp,
        )
        self.items[item.uuid] = item
        return item

    def _list_items(self, request: StandInRequest) -> StandInAnswer:
        """All items, for administrators; the index plays no part in it."""
        if not self._logged_in(request):
            return _problem(401, "Authentication is required", request.path)
        size, page = int(request.query.get("size", "20")), int(request.query.get("page", "0"))
        items = [item.view() for item in self.items.values() if not item.withdrawn]
        facts = {
            "number": page,
            "size": size,
            "totalElements": len(items),
            "totalPages": -(-len(items) // size),
        }
        return StandInAnswer(
            200, {"_embedded": {"items": items[page * size : (page + 1) * size]}, "page": facts}
        )

    def _get_item(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        item = self.items.get(uuid)
        return (
            _problem(404, "no such item", request.path)
            if item is None
            else StandInAnswer(200, item.view())
        )

    def _patch(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        item = self.items.get(uuid)
        if item is None:
            return _problem(404, "no such item", request.path)
        for operation in json.loads(request.body):
            if operation != {"op": "replace", "path": "/discoverable", "value": True}:
                return _problem(422, "operation not supported", request.path)
            item.discoverable = True
        return StandInAnswer(200, item.view())

    def _delete(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        return (
            _problem(404, "no such item", request.path)
            if self.items.pop(uuid, None) is None
            else StandInAnswer(204)
        )

    def _list_bundles(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        item = self.items.get(uuid)
        if item is None:
            return _problem(404, "no such item", request.path)
        return _page(
            [
                {"uuid": bundle, "name": name, "type": "bundle"}
                for name, (bundle, _) in item.bundles.items()
            ],
            "bundles",
        )

    def _make_bundle(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        item = self.items.get(uuid)
        if item is None:
            return _problem(404, "no such item", request.path)
        name = json.loads(request.body)["name"]
        if name in item.bundles:
            return _problem(
                400, f"The bundle name already exists in the item: {name}", request.path
            )
        item.bundles[name] = str(uuid4()), []
        return StandInAnswer(201, {"uuid": item.bundles[name][0], "name": name, "type": "bundle"})

    def _files_of(self, bundle: str) -> list[StandInFile] | None:
        return next(
            (
                files
                for item in self.items.values()
                for uuid, files in item.bundles.values()
                if uuid == bundle
            ),
            None,
        )

    def _list_files(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        files = self._files_of(uuid)
        if files is None:
            return _problem(404, "no such bundle", request.path)
        return _page([file.view() for file in files], "bitstreams")

    def _upload(self, request: StandInRequest, uuid: str) -> StandInAnswer:
        files = self._files_of(uuid)
        if files is None:
            return _problem(404, "no such bundle", request.path)
        parts = _form(request)
        if "file" not in parts:
            return _problem(400, "Required part 'file' is not present.", request.path)
        name, content = parts["file"]
        if "properties" in parts:
            try:
                name = json.loads(parts["properties"][1])["name"]
            except (ValueError, KeyError, TypeError):
                return _problem(422, "properties cannot be parsed", request.path)
        file = StandInFile(name, content)
        files.append(file)
        view = file.view()
        if self.wrong_checksum:
            view["checkSum"] = {"checkSumAlgorithm": "MD5", "value": "0" * 32}
        return StandInAnswer(201, view)

    def _search(self, request: StandInRequest) -> StandInAnswer:
        """A tokenised phrase search, as Solr makes it: it finds longer DOIs too, and only what is
        indexed by now."""
        query = request.query.get("query", "")
        if query.count('"') % 2 or not _WORD.search(query):
            return _problem(400, "Error while performing search", request.path)
        phrases = [_tokens(re.sub(r"\\(.)", r"\1", phrase)) for phrase in _WORD.findall(query)]
        everything = request.query.get("configuration") == "administrativeView" and self._logged_in(
            request
        )
        now = self.clock()
        hits = [
            item
            for item in self.items.values()
            if item.searchable_at <= now
            and (everything or (item.discoverable and not item.withdrawn))
            and _mentions(item, phrases)
        ]
        size, page = int(request.query.get("size", "20")), int(request.query.get("page", "0"))
        objects = [
            {"_embedded": {"indexableObject": item.view()}}
            for item in hits[page * size : (page + 1) * size]
        ]
        pages = -(-len(hits) // size)
        result = {
            "_embedded": {"objects": objects},
            "page": {"number": page, "size": size, "totalElements": len(hits), "totalPages": pages},
        }
        return StandInAnswer(200, {"_embedded": {"searchResult": result}})


_UUID = "([0-9a-f-]{36})"
_ROUTES: list[tuple[str, str, Callable[..., StandInAnswer]]] = [
    ("GET", "/pid/find", DSpaceStandIn._find_handle),
    ("GET", f"/core/collections/{_UUID}", DSpaceStandIn._get_collection),
    ("POST", "/core/items", DSpaceStandIn._create),
    ("GET", "/core/items", DSpaceStandIn._list_items),
    ("GET", f"/core/items/{_UUID}", DSpaceStandIn._get_item),
    ("PATCH", f"/core/items/{_UUID}", DSpaceStandIn._patch),
    ("DELETE", f"/core/items/{_UUID}", DSpaceStandIn._delete),
    ("GET", f"/core/items/{_UUID}/bundles", DSpaceStandIn._list_bundles),
    ("POST", f"/core/items/{_UUID}/bundles", DSpaceStandIn._make_bundle),
    ("GET", f"/core/bundles/{_UUID}/bitstreams", DSpaceStandIn._list_files),
    ("POST", f"/core/bundles/{_UUID}/bitstreams", DSpaceStandIn._upload),
    ("GET", "/discover/search/objects", DSpaceStandIn._search),
]


def _form(request: StandInRequest) -> dict[str, tuple[str, bytes]]:
    """The parts of a multipart form, by name: file name and content, byte by byte as they came."""
    found: dict[str, tuple[str, bytes]] = {}
    boundary = (request.headers.get("Content-Type") or "").partition("boundary=")[2]
    for part in request.body.split(f"--{boundary}".encode())[1:-1] if boundary else ():
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        named = dict(_PARAMETER.findall(head.decode()))
        found[named.get("name", "")] = named.get("filename", ""), content.removesuffix(b"\r\n")
    return found


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _mentions(item: StandInItem, phrases: Sequence[list[str]]) -> bool:
    """Does a metadata value hold one of the phrases, word after word?"""
    for name in item.metadata:
        for value in item.values(name):
            words = _tokens(value)
            for phrase in phrases:
                if any(
                    words[at : at + len(phrase)] == phrase
                    for at in range(len(words) - len(phrase) + 1)
                ):
                    return True
    return False


def _page(entries: list[dict[str, Any]], name: str) -> StandInAnswer:
    page = {
        "number": 0,
        "size": max(20, len(entries)),
        "totalElements": len(entries),
        "totalPages": 1,
    }
    return StandInAnswer(200, {"_embedded": {name: entries}, "page": page})


def _problem(status: int, message: str, path: str) -> StandInAnswer:
    return StandInAnswer(
        status, {"status": status, "error": "error", "message": message, "path": path}
    )


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="dspace_standin", description="A stand-in for a DSpace 7 server, empty at first."
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--collection", default=COLLECTION, help="handle of the one collection")
    given = parser.parse_args(args)
    standin = DSpaceStandIn(port=given.port, collection=given.collection)
    return serve(standin, f"user {USER}, password {PASSWORD}, collection {given.collection}")


if __name__ == "__main__":
    sys.exit(main())
