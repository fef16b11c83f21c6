"""The content stage: only a PDF gets into the store, from allowed hosts, in pieces; everything else
is a counted try."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import md5, sha256
from pathlib import Path

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.deposits_scene import item_of
from tests.net.partner import Line, Partner

import milepost as mp
from milepost_deposits.fetch.content import (
    TAIL,
    ContentStage,
    content_fault,
    content_url,
    end_fault,
)
from milepost_deposits.files import FileStore, StoredFile
from milepost_deposits.standins.sources import PublisherStandIn, small_pdf
from milepost_testing.http_standin import HttpStandIn, StandInAnswer, StandInRequest

DOI = "10.1/x"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "own"))


@pytest.fixture
def stage(make_scene: MakeScene, store: FileStore) -> ContentStage:
    return ContentStage(make_scene().settings, store)


@pytest.fixture
def elsewhere() -> Iterator[PublisherStandIn]:
    """Another server of the publisher, of another origin."""
    with PublisherStandIn(everything=True) as standin:
        yield standin


def failed(outcome: mp.Outcome) -> mp.Retry:
    assert isinstance(outcome, mp.Retry)
    assert "a PDF could not be retrieved" in outcome.error
    return outcome


def test_a_pdf_is_stored_with_its_size_and_checksums(
    stage: ContentStage, store: FileStore, publisher: PublisherStandIn
) -> None:
    publisher.put(DOI, content_type="Application/PDF; charset=UTF-8")
    outcome = stage(item_of(DOI))
    assert isinstance(outcome, mp.Done)
    whole = small_pdf(DOI)
    stored = StoredFile(**outcome.output["file"])
    assert b"".join(store.read(stored)) == whole == Path(stored.place).read_bytes()
    assert (stored.size, stored.md5, stored.sha256) == (
        len(whole),
        md5(whole).hexdigest(),
        sha256(whole).hexdigest(),
    )
    assert stored.bitstream == "10.1-x.pdf"


@pytest.mark.parametrize(
    ("content", "status", "content_type", "reason"),
    [
        (b"<html>", 200, "text/html", "sent text/html"),
        (b"", 200, "application/pdf", "empty"),
        (b"not a pdf", 200, "application/pdf", "%PDF-"),
        (b"%PDF-1.4", 500, "application/pdf", "answered 500"),
        (b"%PDF-1.4", 404, "application/pdf", "answered 404"),
        (b"%PDF-1.4", 206, "application/pdf", "answered 206"),
        (b"%PDF-1.4", 200, "", "no Content-Type"),
        (b"%PDF-1.4", 200, "application/pdfx", "sent application/pdfx"),
    ],
)
def test_whatever_is_no_pdf_is_a_counted_try(
    stage: ContentStage,
    publisher: PublisherStandIn,
    tmp_path: Path,
    content: bytes,
    status: int,
    content_type: str,
    reason: str,
) -> None:
    publisher.put(DOI, content, status=status, content_type=content_type)
    assert reason in failed(stage(item_of(DOI))).error
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("kind", "category"),
    [("reset", "CLOSED"), ("cut", "CUT"), ("html", "NO_PDF"), ("status", "NO_PDF")],
)
def test_every_fault_of_the_publisher_is_a_counted_try(
    stage: ContentStage, publisher: PublisherStandIn, tmp_path: Path, kind: str, category: str
) -> None:
    publisher.put(DOI)
    publisher.fail(kind, 503, acted=True, headers={"Retry-After": "60"})  # type: ignore[arg-type]
    outcome = failed(stage(item_of(DOI)))
    assert outcome.category == category
    assert outcome.after == (60 if kind in ("status", "html") else None)
    assert not (tmp_path / "own").exists()


def test_a_redirect_is_followed_to_an_allowed_host_only(
    make_scene: MakeScene, store: FileStore, publisher: PublisherStandIn
) -> None:
    named = make_scene(content_redirects=("files.example.org",)).settings
    publisher.redirect(DOI, "http://localhost:9/pdf/x")
    outcome = failed(ContentStage(named, store)(item_of(DOI)))
    assert outcome.category == "REDIRECT_REFUSED"
    assert "localhost" in outcome.error


def test_a_redirect_to_an_allowed_host_brings_the_pdf(
    make_scene: MakeScene,
    store: FileStore,
    publisher: PublisherStandIn,
    elsewhere: PublisherStandIn,
) -> None:
    settings = make_scene(content_redirects=("127.0.0.1",)).settings
    publisher.redirect(DOI, f"{elsewhere.origin}/pdf/10.1/y")
    outcome = ContentStage(settings, store)(item_of(DOI))
    assert isinstance(outcome, mp.Done)
    assert outcome.output["from"] == f"{elsewhere.origin}/pdf/10.1/y"
    assert elsewhere.requests == ["GET /pdf/10.1/y"]


def test_each_hop_passes_the_address_guard(
    make_scene: MakeScene, store: FileStore, publisher: PublisherStandIn
) -> None:
    """The host is in the list of allowed hosts, its address is not: a name in that list opens no
    private network."""
    settings = make_scene(content_redirects=("169.254.169.254",)).settings
    publisher.redirect(DOI, "http://169.254.169.254/latest/meta-data/")
    assert failed(ContentStage(settings, store)(item_of(DOI))).category == "ADDRESS_REFUSED"


def test_a_pdf_that_is_too_large_is_not_stored(
    make_scene: MakeScene, store: FileStore, publisher: PublisherStandIn, tmp_path: Path
) -> None:
    publisher.put(DOI, b"%PDF-" + b"x" * 5_000)
    assert (
        failed(
            ContentStage(make_scene(content_largest=1_000).settings, store)(item_of(DOI))
        ).category
        == "TOO_LARGE"
    )
    assert not (tmp_path / "own").exists()


def test_a_large_pdf_is_never_whole_in_memory(
    stage: ContentStage, store: FileStore, publisher: PublisherStandIn
) -> None:
    size = 30_000_000
    publisher.put(DOI, b"%PDF-" + bytes(size - 10) + b"%%EOF")
    item = item_of(DOI)
    tracemalloc.start()
    try:
        outcome = stage(item)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(outcome, mp.Done)
    assert outcome.output["file"]["size"] == size
    assert peak < size / 4


def test_a_second_try_replaces_the_file_of_the_first(
    stage: ContentStage, store: FileStore, publisher: PublisherStandIn, tmp_path: Path
) -> None:
    for content in (b"%PDF-1 %%EOF", b"%PDF-2 %%EOF"):
        publisher.put(DOI, content)
        assert isinstance(stage(item_of(DOI)), mp.Done)
    [file] = (tmp_path / "own").iterdir()
    assert file.read_bytes() == b"%PDF-2 %%EOF"


def test_the_doi_is_encoded_where_the_address_needs_it() -> None:
    doi = "10.1002/(sici)1<19::aid>3.0.co;2-0?#%"
    assert (
        content_url("https://p.example/pdf/{doi}", doi)
        == "https://p.example/pdf/10.1002/%28sici%291%3C19%3A%3Aaid%3E3.0.co%3B2-0%3F%23%25"
    )
    assert (
        content_url("https://p.example/pdf?id={doi_encoded}", "10.1/a b")
        == "https://p.example/pdf?id=10.1%2Fa%20b"
    )


def test_the_mark_of_a_pdf_may_stand_behind_a_few_bytes() -> None:
    assert content_fault(200, "application/pdf", b"\xef\xbb\xbf\r\n%PDF-1.7") is None


def answered(
    make_scene: MakeScene, store: FileStore, head: bytes, body: bytes, **settings: object
) -> mp.Outcome:
    """The outcome with a publisher that answers these bytes, and then ends the connection."""

    def script(line: Line) -> None:
        line.read()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n" + head + b"\r\n" + body)

    with Partner(script) as partner:
        return ContentStage(
            make_scene(content=f"{partner.url}{{doi}}", **settings).settings, store
        )(item_of(DOI))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_a_pdf_that_was_cut_is_a_counted_try_although_no_header_says_its_length(
    make_scene: MakeScene, store: FileStore, tmp_path: Path
) -> None:
    """Without Content-Length, the end of the connection is the end of the file."""
    whole = small_pdf(DOI)
    outcome = failed(answered(make_scene, store, b"", whole[: len(whole) // 2]))
    assert outcome.category == "NO_PDF"
    assert "%%EOF" in outcome.error
    assert "content_end" in outcome.error
    assert not (tmp_path / "own").exists()
    assert isinstance(answered(make_scene, store, b"", whole), mp.Done)


def test_the_end_of_a_pdf_is_not_asked_for_where_the_setting_says_so(
    make_scene: MakeScene, store: FileStore
) -> None:
    assert isinstance(
        answered(make_scene, store, b"", small_pdf(DOI)[:200], content_end=False), mp.Done
    )


def test_a_chunked_answer_that_ends_early_is_an_error_whatever_its_last_bytes_are(
    make_scene: MakeScene, store: FileStore, tmp_path: Path
) -> None:
    """The client knows by itself that the last chunk is missing, also where the setting is off."""
    chunked = b"Transfer-Encoding: chunked\r\n"
    for settings in ({}, {"content_end": False}):
        assert (
            failed(answered(make_scene, store, chunked, chunk(small_pdf(DOI)), **settings)).category
            == "CUT"
        )
    assert not (tmp_path / "own").exists()
    assert isinstance(
        answered(make_scene, store, chunked, chunk(small_pdf(DOI)) + b"0\r\n\r\n"), mp.Done
    )


def test_the_last_mark_of_a_pdf_may_stand_before_a_few_bytes() -> None:
    assert end_fault(b"%%EOF" + bytes(TAIL - 5)) is None
    assert end_fault(b"startxref\n%%EO") is not None
    assert end_fault(b"") is not None


TOKEN = "Wiley-TDM-Client-Token"


def token_stage(
    make_scene: MakeScene, store: FileStore, content: str, value: str = "s3cret", **settings: object
) -> ContentStage:
    scene = make_scene(content=content, content_headers={TOKEN: "WILEY_TOKEN"}, **settings)
    return ContentStage(scene.settings, store, {"WILEY_TOKEN": value} if value else {})


def test_a_header_has_its_value_from_the_environment(
    make_scene: MakeScene, store: FileStore, publisher: PublisherStandIn
) -> None:
    seen: list[str | None] = []

    def answer(request: StandInRequest) -> StandInAnswer:
        seen.append(request.headers.get(TOKEN))
        assert request.path.endswith("/10.1%2Fx") or request.path.endswith("/10.1/x")
        return StandInAnswer(200, small_pdf(DOI), (), "application/pdf")

    with HttpAnswers(answer) as server:
        stage = token_stage(make_scene, store, f"{server.origin}/api/{{doi_encoded}}")
        stage.ready()
        assert isinstance(stage(item_of(DOI)), mp.Done)
    assert seen == ["s3cret"]


def test_a_header_does_not_go_to_another_host(make_scene: MakeScene, store: FileStore) -> None:
    seen: list[str | None] = []

    def other(request: StandInRequest) -> StandInAnswer:
        seen.append(request.headers.get(TOKEN))
        return StandInAnswer(200, small_pdf(DOI), (), "application/pdf")

    with HttpAnswers(other) as elsewhere:
        with HttpAnswers(
            lambda request: StandInAnswer(
                302, b"", (("Location", f"{elsewhere.origin}/x"),), "text/html"
            )
        ) as server:
            stage = token_stage(
                make_scene, store, f"{server.origin}/{{doi}}", content_redirects=("127.0.0.1",)
            )
            assert isinstance(stage(item_of(DOI)), mp.Done)
    assert seen == [None]


def test_a_header_without_a_value_is_a_mistake_and_no_value_is_shown(
    make_scene: MakeScene, store: FileStore
) -> None:
    stage = token_stage(make_scene, store, "http://127.0.0.1:9/{doi}", value="")
    with pytest.raises(
        mp.ConfigMistake, match="WILEY_TOKEN is not set: it holds the header Wiley-TDM-Client-Token"
    ):
        stage.ready()
    outcome = token_stage(make_scene, store, "http://127.0.0.1:9/{doi}", value="two\nlines s3cret")(
        item_of(DOI)
    )
    assert "s3cret" not in str(outcome)
    assert "s3cret" not in str(
        token_stage(make_scene, store, "http://127.0.0.1:9/{doi}")(item_of(DOI))
    )


class HttpAnswers(HttpStandIn):
    """A server that answers as a function says."""

    def __init__(self, answers: Callable[[StandInRequest], StandInAnswer]) -> None:
        super().__init__()
        self._answers = answers

    def answer(self, request: StandInRequest) -> StandInAnswer:
        return self._answers(request)
