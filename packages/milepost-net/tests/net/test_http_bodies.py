"""Bodies of the HTTP client: limits, streams to a sink, files and forms."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.net.partner import LARGE, OPEN, PATIENCE, Line, Partner, StoppedClock, always, failure

import milepost_net as net
from milepost_net import SendState, Timeouts


# Sizes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["Content-Length: 1001\r\n", "Transfer-Encoding: chunked\r\n", ""])
def test_an_answer_over_the_limit_is_cut_off_with_its_beginning_kept(
    client: net.Client, how: str
) -> None:
    def script(line: Line) -> None:
        line.read()
        body = b"x" * 1001 if "chunked" not in how else b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
        line.send(f"HTTP/1.1 500 No\r\n{how}\r\n".encode() + body)

    with Partner(script) as partner:
        error = failure(client, partner.url, largest=1000)
        assert isinstance(error, net.AnswerTooLarge)
        assert error.response is not None
        assert (error.sent, error.response.status, error.response.body) == (
            SendState.ANSWERED,
            500,
            b"x" * 1000,
        )
        assert client.request("GET", partner.url, largest=1001).body == b"x" * 1001


def test_an_endless_answer_ends_at_the_limit(client: net.Client) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while line.send(b"x" * 65_536):
            pass

    with Partner(script) as partner:
        assert isinstance(failure(client, partner.url), net.AnswerTooLarge)


# Streams ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["length", "chunks", "close"])
def test_a_large_body_goes_to_the_sink_and_not_through_memory(
    client: net.Client, tmp_path: Path, how: str
) -> None:
    def script(line: Line) -> None:
        line.read()
        head = {
            "length": f"Content-Length: {len(LARGE)}\r\n",
            "chunks": "Transfer-Encoding: chunked\r\n",
            "close": "",
        }[how]
        line.send(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
        if how == "chunks":
            for at in range(0, len(LARGE), 1 << 20):
                line.send(b"100000\r\n" + LARGE[at : at + (1 << 20)] + b"\r\n")
            line.send(b"0\r\n\r\n")
        else:
            line.send(LARGE)

    largest_piece = 0

    def sink(piece: bytes) -> None:
        nonlocal largest_piece
        largest_piece = max(largest_piece, len(piece))
        file.write(piece)

    with Partner(script) as partner, (tmp_path / "file.pdf").open("wb") as file:
        answer = client.request("GET", partner.url, sink=sink, largest=len(LARGE))
    assert (answer.status, answer.body, answer.size) == (200, b"", len(LARGE))
    assert (tmp_path / "file.pdf").read_bytes() == LARGE
    assert largest_piece < 4 << 20


def test_what_a_sink_is_not_for_stays_in_the_answer(client: net.Client) -> None:
    taken: list[bytes] = []
    with Partner(always(404, b"no such file")) as partner:
        assert client.request("GET", partner.url, sink=taken.append).body == b"no such file"
    assert taken == []


def test_a_body_that_says_it_is_too_large_is_not_begun(client: net.Client) -> None:
    taken: list[bytes] = []
    with Partner(always(200, LARGE)) as partner:
        assert isinstance(
            failure(client, partner.url, sink=taken.append, largest=1000), net.AnswerTooLarge
        )
    assert taken == []


def test_a_sink_that_fails_ends_the_call_with_its_own_error(client: net.Client) -> None:
    def sink(piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    with Partner(always(200, LARGE)) as partner:
        with pytest.raises(OSError, match="No space left"):
            client.request("GET", partner.url, sink=sink, largest=len(LARGE))
        assert client.request("GET", partner.url, largest=len(LARGE)).size == len(LARGE)


def test_a_slow_sink_is_not_the_partners_silence() -> None:
    writing, go_on = threading.Event(), threading.Event()

    def sink(piece: bytes) -> None:
        writing.set()
        go_on.wait(PATIENCE)

    async def main(partner: Partner) -> None:
        clock = StoppedClock(asyncio.get_running_loop())
        async with net.Client(allow_cidrs=OPEN, timeouts=Timeouts(read=5, total=50)) as client:
            call = asyncio.ensure_future(
                client.request_async("GET", partner.url, sink=sink, largest=len(LARGE))
            )
            await asyncio.to_thread(writing.wait, PATIENCE)
            for _ in range(10):
                await clock.move(4)
            go_on.set()
            assert (await call).size == len(LARGE)

    with Partner(always(200, LARGE)) as partner:
        asyncio.run(main(partner))


def test_a_file_is_sent_as_a_body_and_in_a_form(client: net.Client, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(LARGE)
    with Partner(always()) as partner:
        client.request(
            "PUT",
            partner.url,
            body=net.FileBody(tmp_path / "a.pdf", content_type="application/pdf"),
        )
        form = net.MultipartForm(
            [
                net.FormPart("properties", b'{"name": "a"}', content_type="application/json"),
                net.FormPart("file", net.FileBody(tmp_path / "a.pdf"), filename='ä"\r\n.pdf'),
            ]
        )
        client.request("POST", partner.url, body=form)
    plain, multipart = partner.requests
    assert (plain.body, plain.headers["content-type"]) == (LARGE, "application/pdf")
    from email import message_from_bytes

    read = message_from_bytes(
        f"Content-Type: {multipart.headers['content-type']}\r\n\r\n".encode() + multipart.body
    )
    first, second = read.get_payload()
    assert (first.get_payload(decode=True), first.get_content_type()) == (
        b'{"name": "a"}',
        "application/json",
    )
    assert second.get_payload(decode=True) == LARGE
    assert 'filename="ä%22%0D%0A.pdf"'.encode() in multipart.body


def test_an_answer_before_the_whole_body_is_an_answer(client: net.Client, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (30 << 20))

    def script(line: Line) -> None:
        line.sock.recv(65_536)
        line.answer(413, b"too much")
        line.closing.wait()

    with Partner(script) as partner:
        answer = client.request("POST", partner.url, body=net.FileBody(tmp_path / "large"))
        assert (answer.status, answer.body) == (413, b"too much")
        client.request("POST", partner.url)
        assert partner.connections == 2


def test_a_file_that_shrinks_while_it_is_sent_is_no_whole_request(
    client: net.Client, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    body = net.FileBody(path)
    path.write_bytes(b"x" * 999)
    with Partner(always()) as partner:
        error = failure(client, partner.url, "POST", body=body)
        assert partner.requests == []
    assert (error.kind, error.sent) == ("invalid-body", SendState.MAYBE_SENT)
