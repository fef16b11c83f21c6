"""Client of DSpace's REST API: collections by handle, items, bundles, bitstreams, and search by
DOI."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import milepost_net as net
from milepost_deposits.doi import doi_or_none, doi_url
from milepost_deposits.dspace.errors import (
    CollectionUnknown,
    DSpaceRefused,
    DSpaceUnavailable,
    DSpaceUnreadable,
)
from milepost_deposits.dspace.session import DSpaceSession, LoginGuard
from milepost_deposits.settings import DepositsSettings, SubmitSettings

ORIGINAL = "ORIGINAL"
"""The bundle of an item's own files."""
PAGE = 100
MOST_PAGES = 20
MOST_WORDS = 200
"""Words of a metadata value that are looked at: a citation is short."""
DOI_FIELD = "dc.relation.isversionof"
"""Where a DOI is put if the metadata does not name it: a deposit that cannot be found again could
be made twice."""
FORMS = ("{}", "https://doi.org/{}", "http://dx.doi.org/{}")
Metadata = Mapping[str, Sequence[Mapping[str, Any]]]
"""Values by metadata field, as DSpace 7 and later writes them: {"dc.title": [{"value": "…"}]}."""
_RESOLVER = re.compile(r"(?:https?://)?(?:dx\.|www\.)?doi\.org/", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class DSpaceItem:
    """An item of the repository."""

    uuid: str
    handle: str | None
    last_modified: str | None
    discoverable: bool
    withdrawn: bool
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Its handle; one without a handle is named by its UUID."""
        return self.handle or self.uuid

    def values(self, name: str) -> list[str]:
        """The texts of one metadata field."""
        entries = self.metadata.get(name)
        texts = (
            [entry.get("value") for entry in entries if isinstance(entry, dict)]
            if isinstance(entries, list)
            else []
        )
        return [text for text in texts if isinstance(text, str)]


@dataclass(frozen=True)
class DSpaceBitstream:
    """A file of an item, with the checksum that DSpace computed."""

    uuid: str
    name: str
    size: int | None
    checksum: str | None
    algorithm: str | None


class DSpace:
    """The calls that a deposit makes, on a session."""

    def __init__(
        self,
        session: DSpaceSession,
        doi_fields: Sequence[str] = SubmitSettings().doi_fields,
        *,
        administrator: bool = True,
    ) -> None:
        self.session = session
        self.doi_fields = doi_fields
        self.administrator = administrator
        """Searches see private and withdrawn items too; it needs a login with that right."""
        self._collections: dict[str, str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self.session.close()

    # Collections and items ------------------------------------------------------------------------
    def collection(self, handle: str) -> str:
        """The UUID of the collection with this handle, asked once. Raises CollectionUnknown if the
        handle is unknown or of another kind."""
        with self._lock:
            known = self._collections.get(handle)
        if known is not None:
            return known
        found = self.session.get("/pid/find", {"id": handle}, allowed=(200, 302, 404, 501))
        if found.status in (404, 501):
            raise CollectionUnknown(
                f"DSpace knows no collection {handle!r}; check [deposits.submit] collection",
                http_status=found.status,
            )
        if found.status == 302:
            kind, uuid = _redirected(found, handle)
            found = self.session.get(f"/core/{quote(kind)}/{uuid}")
        content = _object(found, "an object")
        if content.get("type") != "collection":
            raise CollectionUnknown(
                f"the handle {handle!r} is of a {content.get('type')!r}, not of a collection; check [deposits.submit] collection"
            )
        uuid = _uuid(content)
        with self._lock:
            self._collections[handle] = uuid
        return uuid

    def create(
        self, collection: str, name: str, metadata: Metadata, *, discoverable: bool
    ) -> DSpaceItem:
        """A new item in the collection. Not idempotent: after an error that is `unknown`, search
        before another try.

        Every flag is sent: DSpace takes an omitted one for false, refuses an item that is not
        archived, and hides one that is not discoverable.
        """
        filled = {
            key: [
                {"language": None, "authority": None, "confidence": -1, **entry}
                for entry in entries
            ]
            for key, entries in metadata.items()
        }
        body = {
            "name": name,
            "metadata": filled,
            "inArchive": True,
            "discoverable": discoverable,
            "withdrawn": False,
            "type": "item",
        }
        path = f"/core/items?owningCollection={collection}"
        answer = self.session.write(
            "POST", path, _json(body), content_type="application/json", allowed=(201,)
        )
        return _item(_object(answer, "the item", unknown=True), unknown=True)

    def publish(self, uuid: str) -> DSpaceItem:
        """Make an item discoverable: searches show it from then on."""
        patch = [{"op": "replace", "path": "/discoverable", "value": True}]
        answer = self.session.write(
            "PATCH",
            f"/core/items/{uuid}",
            _json(patch),
            content_type="application/json",
            allowed=(200,),
        )
        return _item(_object(answer, "the item"))

    def delete(self, uuid: str) -> None:
        """Delete an item with its files. One that is gone already is fine."""
        self.session.write("DELETE", f"/core/items/{uuid}", allowed=(204, 404))

    # Files ----------------------------------------------------------------------------------------
    def bundle(self, item: str) -> str:
        """The UUID of the item's bundle ORIGINAL, made if there is none."""
        return self._find_bundle(item) or self.new_bundle(item)

    def new_bundle(self, item: str) -> str:
        """The UUID of the bundle ORIGINAL of an item that has none."""
        body = _json({"name": ORIGINAL, "metadata": {}})
        path = f"/core/items/{item}/bundles"
        answer = self.session.write(
            "POST", path, body, content_type="application/json", allowed=(201, 400)
        )
        if answer.status == 201:
            return _uuid(_object(answer, "the bundle"))
        # Made by another try meanwhile: DSpace refuses a second one of that name.
        found = self._find_bundle(item)
        if found is None:
            raise DSpaceRefused(
                f"DSpace makes no bundle {ORIGINAL} for item {item}", http_status=400
            )
        return found

    def _find_bundle(self, item: str) -> str | None:
        bundles = self._pages(f"/core/items/{item}/bundles", "bundles")
        return next((_uuid(one) for one in bundles if one.get("name") == ORIGINAL), None)

    def bitstreams(self, bundle: str) -> list[DSpaceBitstream]:
        return [
            _bitstream(one)
            for one in self._pages(f"/core/bundles/{bundle}/bitstreams", "bitstreams")
        ]

    def files(self, item: str) -> list[DSpaceBitstream]:
        """The item's own files."""
        bundle = self._find_bundle(item)
        return [] if bundle is None else self.bitstreams(bundle)

    def upload(self, bundle: str, name: str, content: net.RequestBody) -> DSpaceBitstream:
        """Add a file to a bundle; it is read while it is sent. Compare the answer's checksum with
        your own: DSpace does not."""
        parts = [
            net.FormPart("file", content, filename=name, content_type="application/pdf"),
            net.FormPart("properties", _json({"name": name, "metadata": {}})),
        ]
        answer = self.session.write(
            "POST",
            f"/core/bundles/{bundle}/bitstreams",
            net.MultipartForm(parts),
            allowed=(200, 201),
        )
        return _bitstream(_object(answer, "the bitstream", unknown=True))

    # Search ---------------------------------------------------------------------------------------
    def find(self, doi: str) -> list[DSpaceItem]:
        """The items whose metadata has exactly this DOI, as far as the index knows: it may be
        behind, or lack items while it is rebuilt (see `ItemSearch`). Raises DSpaceError where the
        search fails; that never means that there is none."""
        return self.having(self.search(query_for(doi, self.doi_fields)), doi)

    def having(self, items: Sequence[DSpaceItem], doi: str) -> list[DSpaceItem]:
        """Those of the items whose metadata has exactly this DOI."""
        return [item for item in items if has_doi(item.metadata, doi, self.doi_fields)]

    def search(self, query: str) -> list[DSpaceItem]:
        """All items that the index has for a query of Solr's. Raises DSpaceError where the search
        fails."""
        parameters = {"query": query, "dsoType": "item", "size": str(PAGE)}
        if self.administrator:
            parameters["configuration"] = "administrativeView"
        found: dict[str, DSpaceItem] = {}
        for page in range(MOST_PAGES):
            content = _object(
                self.session.get("/discover/search/objects", {**parameters, "page": str(page)}),
                "a search result",
            )
            result = _path(content, "_embedded", "searchResult")
            if not isinstance(result, dict):
                raise DSpaceUnreadable("DSpace's answer to a search has no searchResult")
            objects = _path(result, "_embedded", "objects")
            for entry in objects if isinstance(objects, list) else ():
                content = _path(entry, "_embedded", "indexableObject")
                if isinstance(content, dict):
                    item = _item(content)
                    found[item.uuid] = item
            if not _more(result, page):
                return list(found.values())
        raise DSpaceUnavailable(
            f"the search {query[:100]} has more than {MOST_PAGES * PAGE:,} hits; whether DSpace has the item is unknown"
        )

    # Reads that need no index ---------------------------------------------------------------------
    def item(self, uuid: str) -> DSpaceItem | None:
        """The item with this UUID; None if DSpace has none, or gives it only to others."""
        answer = self.session.get(f"/core/items/{quote(uuid)}", allowed=(200, 401, 403, 404))
        return _item(_object(answer, "an item")) if answer.status == 200 else None

    def item_of(self, handle: str) -> DSpaceItem | None:
        """The item with this handle; None if DSpace has none, or gives it only to others."""
        answer = self.session.get(
            "/pid/find", {"id": handle}, allowed=(200, 302, 401, 403, 404, 501)
        )
        if answer.status == 302:
            kind, uuid = _redirected(answer, handle)
            return self.item(uuid) if kind == "items" else None
        return _item(_object(answer, "an item")) if answer.status == 200 else None

    def first_items(self) -> tuple[list[DSpaceItem], bool] | None:
        """Some items of the repository, and whether they are all that it has. None: DSpace gives
        this list only to administrators."""
        answer = self.session.get(
            "/core/items", {"size": str(PAGE), "page": "0"}, allowed=(200, 401, 403, 404, 405)
        )
        if answer.status != 200:
            return None
        content = _object(answer, "a list of items")
        entries = _path(content, "_embedded", "items")
        items = (
            [_item(entry) for entry in entries if isinstance(entry, dict)]
            if isinstance(entries, list)
            else []
        )
        return items, isinstance(_path(content, "page", "totalPages"), int) and not _more(
            content, 0
        )

    def _pages(self, path: str, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in range(MOST_PAGES):
            content = _object(
                self.session.get(path, {"size": str(PAGE), "page": str(page)}), f"a list of {name}"
            )
            entries = _path(content, "_embedded", name)
            found += (
                [one for one in entries if isinstance(one, dict)]
                if isinstance(entries, list)
                else []
            )
            if not _more(content, page):
                break
        return found


def open_dspace(
    settings: DepositsSettings,
    environment: Mapping[str, str],
    url: str,
    *,
    now: Callable[[], float] = time.time,
    timeout: float | None = None,
    guard: LoginGuard | None = None,
) -> DSpace:
    """A client of the DSpace server at `url`, with the user and password that the environment has,
    or without. Without a guard every login is tried."""
    submit = settings.submit
    user, password = environment.get(submit.user_env), environment.get(submit.password_env)
    limit = {} if timeout is None else {"timeout": timeout}
    session = DSpaceSession(
        url, user or None, password, allow_cidrs=settings.allow_cidrs, now=now, guard=guard, **limit
    )
    return DSpace(session, submit.doi_fields, administrator=bool(user))


def query_for(doi: str, fields: Sequence[str], *, encoded: bool = True) -> str:
    """The Solr query for a DOI in these fields, in all of its usual forms, percent-encoded ones
    too: to the index an encoded character is part of a word."""
    texts = [form.format(doi) for form in FORMS]
    if encoded:
        whole = quote(doi, safe="")
        texts += [doi_url(doi), quote(doi, safe="/"), whole, f"https://doi.org/{whole}"]
    return " OR ".join(
        f"{field}:{quoted(text)}" for field in fields for text in dict.fromkeys(texts)
    )


def quoted(text: str) -> str:
    """A phrase of Solr's query syntax. Without the quotes ':', '/', '(' and others would change the
    query."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def has_doi(metadata: Any, doi: str, fields: Sequence[str]) -> bool:
    """Is this the metadata of an item with exactly this DOI? The index is tokenised: a search for
    10.1/abc also finds 10.1/abc.1."""
    if not isinstance(metadata, dict):
        return False
    for name in fields:
        entries = metadata.get(name)
        for entry in entries if isinstance(entries, list) else ():
            value = entry.get("value") if isinstance(entry, dict) else None
            if isinstance(value, str) and doi in _readings(value):
                return True
    return False


def findable(metadata: Metadata, doi: str, fields: Sequence[str]) -> Metadata:
    """The metadata with the DOI in one of the fields that a search looks at."""
    if has_doi(metadata, doi, fields):
        return metadata
    name = field_for_doi(fields)
    return {**metadata, name: [*metadata.get(name, ()), {"value": doi_url(doi)}]}


def field_for_doi(fields: Sequence[str]) -> str:
    """The field into which a DOI is put that the metadata does not name."""
    return DOI_FIELD if DOI_FIELD in fields else fields[0]


def _readings(value: str) -> set[str | None]:
    """The DOIs that a metadata value names, one of its words too, as in a citation. Some programs
    write '#', '?' and '%' of a DOI into a URL as they are: both readings count, since an item that
    is overlooked would be made again."""
    words = value.split(maxsplit=MOST_WORDS)[:MOST_WORDS]
    return {
        doi_or_none(value),
        doi_or_none(_RESOLVER.sub("", value.strip(), count=1)),
        *(map(doi_or_none, words) if len(words) > 1 else ()),
    }


def _more(content: dict[str, Any], page: int) -> bool:
    pages = _path(content, "page", "totalPages")
    return isinstance(pages, int) and page + 1 < pages


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _object(answer: net.Response, what: str, *, unknown: bool = False) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DSpaceUnreadable(
            f"DSpace's answer {answer.status} is not {what} as JSON",
            http_status=answer.status,
            unknown=unknown,
        )
    return content


def _path(content: Any, *names: str) -> Any:
    for name in names:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _redirected(answer: net.Response, handle: str) -> tuple[str, str]:
    """The kind and UUID of the object to which a redirect leads. Only its path counts: behind a
    proxy its host and scheme are often wrong."""
    place = urlsplit(answer.headers.get("Location") or "").path
    kind, _, uuid = place.rpartition("/core/")[2].partition("/")
    if not _UUID.fullmatch(uuid):
        raise DSpaceUnreadable(
            f"DSpace's answer for handle {handle!r} leads to no object", http_status=302
        )
    return kind, uuid


def _uuid(content: Mapping[str, Any], *, unknown: bool = False) -> str:
    uuid = content.get("uuid")
    if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
        raise DSpaceUnreadable("DSpace's answer has no UUID", unknown=unknown)
    return uuid


def _item(content: Mapping[str, Any], *, unknown: bool = False) -> DSpaceItem:
    metadata = content.get("metadata")
    return DSpaceItem(
        _uuid(content, unknown=unknown),
        _text(content.get("handle")),
        _text(content.get("lastModified")),
        content.get("discoverable") is True,
        content.get("withdrawn") is True,
        metadata if isinstance(metadata, dict) else {},
    )


def _bitstream(content: Mapping[str, Any]) -> DSpaceBitstream:
    size = content.get("sizeBytes")
    checksum = content.get("checkSum")
    checksum = checksum if isinstance(checksum, dict) else {}
    return DSpaceBitstream(
        _uuid(content),
        _text(content.get("name")) or "",
        size if isinstance(size, int) else None,
        _text(checksum.get("value")),
        _text(checksum.get("checkSumAlgorithm")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
