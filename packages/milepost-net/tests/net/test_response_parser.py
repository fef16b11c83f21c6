"""The parser of responses: any split of the bytes gives the same answer, and the standard library
reads the same."""

from __future__ import annotations

import io
from collections.abc import Sequence
from http.client import HTTPResponse
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost_net.response import MalformedResponse, Response, ResponseParser

tokens = st.text("abcdefghijklmnopqrstuvwxyzABCDEF0123456789-_!", min_size=1, max_size=12)
values = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f").filter(lambda c: ord(c) not in range(0x7F, 0xA1)), max_size=20)  # fmt: skip
framing = ("content-length", "transfer-encoding", "connection")


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes, bool]:
    """The bytes of a valid answer, its body, and whether it ends by itself."""
    status = draw(st.sampled_from([200, 201, 202, 400, 404, 429, 500, 503]))
    headers = [
        (name, value)
        for name, value in draw(st.lists(st.tuples(tokens, values), max_size=5))
        if name.lower() not in framing
    ]
    body = draw(st.binary(max_size=300))
    how = draw(st.sampled_from(["length", "chunks", "close"]))
    sent = body
    if how == "length":
        headers.append(("Content-Length", str(len(body))))
    elif how == "chunks":
        headers.append(("Transfer-Encoding", "chunked"))
        cuts = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=4))})
        pieces = [body[start:end] for start, end in pairwise(cuts)]
        extension = draw(st.sampled_from([b"", b";a=b", b" ; x"]))
        sent = (
            b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
            + b"0\r\n"
        )
        sent += draw(st.sampled_from([b"", b"X-Sum: 1\r\n"])) + b"\r\n"
    early = draw(
        st.sampled_from(
            [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n"]
        )
    )
    head = (
        f"HTTP/1.1 {status} Said\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in headers)
        + "\r\n"
    )
    return early + head.encode("latin-1") + sent, body, how != "close"


def read(pieces: Sequence[bytes], method: str = "GET") -> tuple[ResponseParser, bytes]:
    parser, body = ResponseParser(method), b""
    for piece in pieces:
        body += b"".join(parser.feed(piece))
    return parser, body


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> Any:
        return io.BytesIO(self._data)


@given(answers(), st.lists(st.integers(0, 2_000), max_size=8))
def test_any_split_gives_the_same_answer(
    answer: tuple[bytes, bytes, bool], cuts: list[int]
) -> None:
    data, expected, ends = answer
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parser, body = read([data[start:end] for start, end in pairwise(places)])
    assert body == expected
    assert parser.done == ends
    assert parser.reusable == ends
    assert parser.feed_eof()


@given(answers())
def test_the_standard_library_reads_the_same(answer: tuple[bytes, bytes, bool]) -> None:
    data, expected, _ = answer
    final = data[data.index(b"\r\n\r\n") + 4 :] if data.startswith(b"HTTP/1.1 1") else data
    other = HTTPResponse(_Socket(final), method="GET")  # type: ignore[arg-type]
    other.begin()
    parser, body = read([data])
    assert (parser.status, body) == (other.status, other.read()) == (other.status, expected)
    for name, _ in parser.headers:
        assert parser.headers.get_all(name) == [
            value.strip() for value in other.headers.get_all(name) or []
        ]
    other.close()


@given(answers())
def test_byte_by_byte_is_the_same_too(answer: tuple[bytes, bytes, bool]) -> None:
    data, expected, _ = answer
    assert read([data[at : at + 1] for at in range(len(data))])[1] == expected


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_fail_otherwise_than_as_malformed(data: bytes) -> None:
    for prefix in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        try:
            read([prefix + data])
        except MalformedResponse:
            pass


@given(answers(), st.binary(min_size=1, max_size=50))
def test_bytes_after_the_end_make_the_connection_useless_and_never_reach_the_body(
    answer: tuple[bytes, bytes, bool], more: bytes
) -> None:
    data, expected, ends = answer
    if ends:
        parser, body = read([data + more])
        assert (body, parser.done, parser.reusable) == (expected, True, False)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        OK + b"Content-Length : 1\r\n\r\n",
        OK + b"Content-Length: 1\r\n folded\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\n",
        OK + b"Content-Length: 1_0\r\n\r\n",
        OK + b"Content-Length: 0x1\r\n\r\n",
        OK + b"Content-Length: \r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: 1, 2\r\n\r\n",
        OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"X\x00Y: 1\r\n\r\n",
        OK + b"X: a\x00b\r\n\r\n",
        OK + b"X: a\rb\r\n\r\n",
        OK + b": nameless\r\n\r\n",
        OK + b"X: " + b"a" * 70_000,
        OK + b"X: a\r\n" * 20_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 5_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: a\r\n" * 20_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nnonsense\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000,
    ],
)
def test_what_is_malformed_is_said_to_be(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read([data])
    with pytest.raises(MalformedResponse):
        read([data[at : at + 997] for at in range(0, len(data), 997)])


@pytest.mark.parametrize(
    ("head", "method", "done", "reusable"),
    [
        (b"HTTP/1.1 204 No\r\n\r\n", "POST", True, True),
        (b"HTTP/1.1 304 No\r\nContent-Length: 7\r\n\r\n", "GET", True, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "HEAD", True, True),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "GET", True, True),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive, Close\r\n\r\n",
            "GET",
            True,
            False,
        ),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", True, False),
        (
            b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
            "GET",
            True,
            True,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\nContent-Length: 1\r\n\r\na",
            "GET",
            True,
            True,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET",
            True,
            False,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n", "GET", False, False),
    ],
)
def test_where_an_answer_ends(head: bytes, method: str, done: bool, reusable: bool) -> None:
    parser, _ = read([head], method)
    assert (parser.done, parser.reusable) == (done, reusable)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([("Retry-After", "120")], 120.0),
        ([("retry-after", " 7 ")], 7.0),
        ([("Retry-After", "soon")], None),
        ([("Retry-After", "-1")], None),
        ([("Retry-After", "9" * 400)], 86_400.0),
        (
            [
                ("Retry-After", "Fri, 31 Dec 2100 23:59:59 GMT"),
                ("Date", "Wed, 31 Dec 2098 23:59:29 GMT"),
            ],
            86_400.0,
        ),
        ([("Retry-After", "Fri, 31 Dec 2100 23:59:59 GMT")], None),
        (
            [
                ("Retry-After", "Fri, 31 Dec 2100 23:59:59 GMT"),
                ("Date", "Fri, 31 Dec 2100 23:59:29 GMT"),
            ],
            30.0,
        ),
        (
            [
                ("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"),
                ("Date", "Fri, 31 Dec 2100 23:59:29 GMT"),
            ],
            0.0,
        ),
    ],
)
def test_retry_after_in_seconds(headers: list[tuple[str, str]], seconds: float | None) -> None:
    from milepost_net import HeaderList

    assert Response(503, HeaderList(headers)).retry_after == seconds


# What RFC 9112 lets a reader accept ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "headers"),
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nok", {"content-length": "2", "x-a": "b"}),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\nX-A: b\r\n\r\nok",
            {"content-length": "2", "x-a": "b"},
        ),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\r\nok", {"content-length": "2"}),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok", {"content-length": "2"}),
        (b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", {"content-length": "2"}),
        (b"\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", {"content-length": "2"}),
        (
            b"HTTP/1.1 200 OK\r\nX-A: b\r\n  c\r\n\td\r\nContent-Length: 2\r\n\r\nok",
            {"x-a": "b c d", "content-length": "2"},
        ),
        (
            b"HTTP/1.1 200 OK\nX-A:\n b\nContent-Length: 2\n\nok",
            {"x-a": " b", "content-length": "2"},
        ),
    ],
)
def test_a_head_with_bare_line_feeds_folded_lines_or_empty_lines_before_it_is_read(
    answer: bytes, headers: dict[str, str]
) -> None:
    for size in (1, 3, len(answer)):
        parser, body = read([answer[start : start + size] for start in range(0, len(answer), size)])
        assert (parser.done, parser.status, body, parser.reusable) == (True, 200, b"ok", False)
        assert {name: parser.headers.get(name) for name in headers} == {
            name: value.strip() for name, value in headers.items()
        }


def test_an_empty_line_in_the_body_of_a_bare_head_does_not_move_its_end() -> None:
    parser, body = read([b"HTTP/1.1 200 OK\nContent-Length: 10\n\nabc\r\n\r\nxyz"])
    assert (parser.done, body) == (True, b"abc\r\n\r\nxyz")
    parser, body = read([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na\n\nb\n\n"])
    assert (parser.done, body, parser.reusable) == (True, b"a\n\nb\n\n", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n X-A: b\r\n\r\n",
        b"HTTP/1.1 200 OK\rX-A: b\r\n\r\n",
        b"\r\n\r\nSSH-2.0\r\n\r\n",
    ],
)
def test_what_no_reader_may_accept_is_malformed_still(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read([answer])


@pytest.mark.parametrize(
    ("part", "came"),
    [
        (b"HT", "2 bytes"),
        (b"HTTP/1.1 200 OK", "15 bytes"),
        (b"HTTP/1.1 204 No Content\r\nServ", "its first line, 'HTTP/1.1 204 No Content'"),
        (b"HTTP/1.1 204 No Content\nServ", "its first line, 'HTTP/1.1 204 No Content'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", "its head, with the status 200"),
    ],
)
def test_it_says_what_came_of_an_answer_that_was_cut_off(part: bytes, came: str) -> None:
    assert read([part])[0].what_came == came
