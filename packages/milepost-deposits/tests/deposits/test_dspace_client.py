"""The DSpace client against the stand-in over HTTP: tokens, logins, items, files, search and
errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import milepost_net as net
from milepost_deposits.dspace.api import DSpace, query_for, quoted
from milepost_deposits.dspace.errors import (
    CollectionUnknown,
    DSpaceError,
    DSpaceForbidden,
    DSpaceLoginFailed,
    DSpaceLoginRefused,
    DSpaceUnavailable,
    DSpaceUnreadable,
)
from milepost_deposits.dspace.session import DSpaceSession, expiry_of
from milepost_deposits.settings import SubmitSettings
from milepost_deposits.standins.dspace import COLLECTION, PASSWORD, USER, DSpaceStandIn

LOOPBACK = ("127.0.0.0/8",)
DOI = "10.1000/abc"
METADATA = {
    "dc.title": [{"value": "T"}],
    "dc.relation.isversionof": [{"value": f"http://dx.doi.org/{DOI.upper()}"}],
}
PDF = b"%PDF-1.4\r\n\r\n--\x00\xff\r lone\r\n" * 1000


class PdfBody:
    """A body of two pieces."""

    length = len(PDF)
    content_type = None

    def pieces(self) -> Iterator[bytes]:
        yield PDF[:100]
        yield PDF[100:]


class DSpaceScene:
    """A stand-in and a client of it; `time` is the time of both."""

    def __init__(self, standin: DSpaceStandIn) -> None:
        self.standin = standin
        self.time = 1_000_000.0
        standin.clock = lambda: self.time
        self.client = self.client_with()

    def client_with(
        self, user: str | None = USER, password: str = PASSWORD, timeout: float = 30.0
    ) -> DSpace:
        session = DSpaceSession(
            self.standin.url,
            user,
            password,
            allow_cidrs=LOOPBACK,
            timeout=timeout,
            now=lambda: self.time,
        )
        return DSpace(session, administrator=user is not None)

    def create(self, *, discoverable: bool = True) -> str:
        return self.client.create(
            self.client.collection(COLLECTION), "T", METADATA, discoverable=discoverable
        ).uuid


@pytest.fixture
def scene() -> Iterator[DSpaceScene]:
    with DSpaceStandIn() as standin:
        made = DSpaceScene(standin)
        yield made
        made.client.close()


def test_the_first_write_fetches_a_token_and_logs_in_with_it(scene: DSpaceScene) -> None:
    scene.create()
    first = [
        line.removeprefix("GET /server/api").removeprefix("POST /server/api")
        for line in scene.standin.requests[:2]
    ]
    assert first == ["/security/csrf", "/authn/login"]
    scene.create()
    assert scene.standin.count("* /server/api/authn/login") == 1
    assert scene.standin.count("GET /server/api/security/csrf") == 1


def test_a_whole_deposit(scene: DSpaceScene) -> None:
    dspace = scene.client
    uuid = scene.create(discoverable=False)
    bundle = dspace.bundle(uuid)
    assert dspace.bundle(uuid) == bundle, "one that is there is used"
    stored = dspace.upload(bundle, "10.1000-abc.pdf", PdfBody())
    [file] = scene.standin.items[uuid].files
    assert (file.name, file.content) == ("10.1000-abc.pdf", PDF)
    assert (stored.size, stored.checksum) == (len(PDF), file.view()["checkSum"]["value"])
    assert dspace.bitstreams(bundle) == [stored]
    item = dspace.publish(uuid)
    assert item.discoverable
    assert item.handle == scene.standin.items[uuid].handle
    assert dspace.find(DOI) == [item]
    dspace.delete(uuid)
    dspace.delete(uuid)
    assert scene.standin.items == {}


def test_all_flags_are_sent(scene: DSpaceScene) -> None:
    """DSpace takes an omitted flag for false: the item would be refused, or hidden."""
    uuid = scene.create(discoverable=True)
    assert scene.standin.items[uuid].discoverable


def test_a_stale_csrf_token_costs_one_more_request_and_makes_one_bitstream(
    scene: DSpaceScene,
) -> None:
    bundle = scene.client.bundle(scene.create())
    scene.standin.rotate_token()
    scene.client.upload(bundle, "a.pdf", PdfBody())
    assert [len(item.files) for item in scene.standin.items.values()] == [1]
    assert scene.standin.count("POST */bitstreams") == 2


def test_an_expired_login_is_made_again_once(scene: DSpaceScene) -> None:
    scene.create()
    scene.standin.end_logins()
    scene.create()
    assert scene.standin.count("POST */authn/login") == 2
    assert len(scene.standin.items) == 2


def test_a_login_is_renewed_before_it_expires(scene: DSpaceScene) -> None:
    scene.create()
    scene.time += scene.standin.login_s - 120
    scene.create()
    assert scene.standin.requests[-2:] == [
        "POST /server/api/authn/login",
        "POST /server/api/core/items",
    ]
    scene.time += scene.standin.login_s - 600
    scene.create()
    assert scene.standin.count("POST */authn/login") == 2


def test_many_threads_share_one_login(scene: DSpaceScene) -> None:
    collection = scene.client.collection(COLLECTION)
    scene.standin.end_logins()
    threads = [
        threading.Thread(
            target=scene.client.create,
            args=(collection, "T", METADATA),
            kwargs={"discoverable": True},
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scene.standin.items) == 8
    assert scene.standin.count("POST */authn/login") <= 9


def test_wrong_credentials(scene: DSpaceScene) -> None:
    dspace = scene.client_with(password="wrong")
    with pytest.raises(
        DSpaceLoginRefused, match=rf"^DSpace refused the login of {USER} \(401\)$"
    ) as raised:
        dspace.create("x", "T", METADATA, discoverable=True)
    assert (raised.value.http_status, raised.value.unknown) == (401, False)
    assert "wrong" not in str(raised.value)
    dspace.close()


def test_a_denied_right_is_named_and_not_repeated(scene: DSpaceScene) -> None:
    collection = scene.client.collection(COLLECTION)
    scene.standin.fail(
        "status", 403, where="POST */core/items", body={"message": "Access is denied"}
    )
    with pytest.raises(DSpaceForbidden) as raised:
        scene.client.create(collection, "T", METADATA, discoverable=True)
    assert (raised.value.permanent, raised.value.unknown) == (False, False), (
        "the right can be granted"
    )
    assert scene.standin.count("POST */core/items") == 1


def test_a_metadata_field_outside_the_registry(scene: DSpaceScene) -> None:
    """DSpace answers 500, which may also come after a commit: the result is unknown."""
    with pytest.raises(DSpaceUnavailable) as raised:
        scene.client.create(
            scene.client.collection(COLLECTION),
            "T",
            {"no.such.field.here": [{"value": "x"}]},
            discoverable=True,
        )
    assert raised.value.unknown


@pytest.mark.parametrize("kind", ["reset", "cut", "hang"])
def test_no_answer_to_a_write_is_unknown_and_not_repeated(scene: DSpaceScene, kind: str) -> None:
    dspace = scene.client_with(timeout=0.5 if kind == "hang" else 30)
    collection = dspace.collection(COLLECTION)
    scene.standin.fail(kind, where="POST */core/items", acted=True)  # type: ignore[arg-type]
    with pytest.raises(DSpaceUnavailable) as raised:
        dspace.create(collection, "T", METADATA, discoverable=True)
    assert raised.value.unknown
    assert len(scene.standin.items) == 1
    assert scene.standin.count("POST */core/items") == 1
    dspace.close()


def test_an_unreadable_answer_to_a_write_is_unknown(scene: DSpaceScene) -> None:
    collection = scene.client.collection(COLLECTION)
    scene.standin.fail("html", where="POST */core/items", acted=True)
    with pytest.raises(DSpaceError) as raised:
        scene.client.create(collection, "T", METADATA, discoverable=True)
    assert (raised.value.category, raised.value.unknown) == ("DSPACE_UNREADABLE", True)


def test_an_unreachable_server_is_known_not_to_have_acted() -> None:
    with DSpaceStandIn() as gone:
        url = gone.url
    session = DSpaceSession(url, USER, PASSWORD, allow_cidrs=LOOPBACK)
    with pytest.raises(DSpaceUnavailable) as raised:
        session.write("POST", "/core/items")
    assert not raised.value.unknown
    session.close()


def test_a_server_that_asks_for_patience(scene: DSpaceScene) -> None:
    scene.standin.fail("status", 429, where="GET */pid/find", headers={"Retry-After": "30"})
    with pytest.raises(DSpaceUnavailable) as raised:
        scene.client.collection(COLLECTION)
    assert (raised.value.retry_after, raised.value.unknown) == (30.0, False)


def test_the_redirect_of_a_handle_is_followed_on_our_own_server(scene: DSpaceScene) -> None:
    """The stand-in's redirect names a host that does not exist, as behind a misconfigured proxy."""
    assert scene.client.collection(COLLECTION) == scene.standin.collections[COLLECTION]
    scene.client.collection(COLLECTION)
    assert scene.standin.count("GET */pid/find") == 1


def test_a_handle_that_is_no_collection(scene: DSpaceScene) -> None:
    with pytest.raises(CollectionUnknown, match="knows no collection"):
        scene.client.collection("1/404")
    item = scene.standin.put(METADATA)
    with pytest.raises(CollectionUnknown, match="not of a collection"):
        scene.client.collection(item.handle)


def test_a_search_compares_exactly(scene: DSpaceScene) -> None:
    scene.standin.put({"dc.identifier.doi": [{"value": f"{DOI}.1"}]})
    assert scene.client.find(DOI) == []
    ours = scene.standin.put({"dc.identifier.doi": [{"value": DOI.upper()}]})
    assert [item.uuid for item in scene.client.find(DOI)] == [ours.uuid]


def test_a_search_sees_private_items_only_with_a_login(scene: DSpaceScene) -> None:
    hidden = scene.standin.put(METADATA, discoverable=False)
    assert [item.uuid for item in scene.client.find(DOI)] == [hidden.uuid]
    anonymous = scene.client_with(user=None)
    assert anonymous.find(DOI) == []
    with pytest.raises(DSpaceLoginFailed):
        anonymous.delete(hidden.uuid)
    anonymous.close()


def test_the_index_is_late(scene: DSpaceScene) -> None:
    scene.standin.index_lag = 30
    uuid = scene.create()
    assert scene.client.find(DOI) == []
    scene.time += 30
    assert [item.uuid for item in scene.client.find(DOI)] == [uuid]


@pytest.mark.parametrize("status", [400, 500])
def test_a_search_that_fails_never_means_that_there_is_none(
    scene: DSpaceScene, status: int
) -> None:
    scene.standin.fail("status", status, where="GET */discover/*")
    with pytest.raises(DSpaceError):
        scene.client.find(DOI)


def test_a_search_through_all_pages(scene: DSpaceScene) -> None:
    for number in range(120):
        scene.standin.put({"dc.identifier.doi": [{"value": f"{DOI}.{number}"}]})
    last = scene.standin.put({"dc.identifier.doi": [{"value": DOI}]})
    assert [item.uuid for item in scene.client.find(DOI)] == [last.uuid]


def test_an_answer_that_is_no_dspace(scene: DSpaceScene) -> None:
    scene.standin.fail("html", where="GET */discover/*")
    with pytest.raises(DSpaceUnreadable):
        scene.client.find(DOI)


def test_only_a_refused_write_is_permanent(scene: DSpaceScene) -> None:
    scene.standin.fail(
        "status", 403, where="GET */discover/*", body={"message": "Access is denied"}
    )
    with pytest.raises(DSpaceForbidden) as raised:
        scene.client.find(DOI)
    assert not raised.value.permanent


def test_the_query_is_quoted() -> None:
    assert quoted('a"b\\c') == '"a\\"b\\\\c"'
    query = query_for("10.1002/(sici)1:1<19::aid>3.0.co;2-0", SubmitSettings().doi_fields)
    assert 'dc.identifier.doi:"10.1002/(sici)1:1<19::aid>3.0.co;2-0"' in query


def test_expiry_of_odd_tokens() -> None:
    assert expiry_of("Bearer x") is None
    assert expiry_of("Bearer a.b.c") is None
    assert expiry_of(f"Bearer e30.{'e30'}.x") is None


def test_a_form_part_takes_any_body() -> None:
    form = net.MultipartForm([net.FormPart("file", PdfBody(), filename="a.pdf")])
    assert len(b"".join(form.pieces())) == form.length
    assert json.dumps(form.content_type)
