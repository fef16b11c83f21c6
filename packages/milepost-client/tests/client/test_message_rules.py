"""Message rules: the service and its clients accept and refuse the same, and make the same of
it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.values.key_text import key_parts
from milepost_client import KEY, MessageRefused, check_message
from milepost_notifications.operate.messages import read_message

LIMIT = 200
GOOD = {
    "messageId": "m-1",
    "timestamp": "2026-01-31T08:00:00Z",
    "senderId": "shop",
    "targetUrl": "https://crm.example/a",
}

# Without halves of surrogate pairs, which no JSON in UTF-8 holds.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.sampled_from([0.5, -1.25]) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
nearly_good = st.fixed_dictionaries(
    {},
    optional={
        "messageId": st.sampled_from(["m-1", " m ", "", "é", "a\nb", 7]) | value,
        "timestamp": st.sampled_from(
            [
                "2026-01-31T08:00:00Z",
                "2026-01-31T08:00:00.123456+08:00",
                "2026-02-30T00:00:00Z",
                "now",
            ]
        )
        | value,
        "senderId": st.sampled_from(["shop", ""]) | value,
        "targetUrl": st.sampled_from(
            [
                "https://crm.example/a",
                "http://127.0.0.1:9/",
                "ftp://crm.example",
                "https://u:p@crm.example/",
            ]
        )
        | value,
        "method": st.sampled_from(["POST", "put", "GET", "BREW", None]) | value,
        "headers": st.dictionaries(
            st.sampled_from(["X-A", "x-a", "Host", "X-Message-ID", "a b"]), text, max_size=3
        )
        | value,
        "body": value | st.just("x" * (LIMIT + 1)) | st.just("é" * LIMIT),
        "deliverAt": st.sampled_from(["2026-01-31T08:00:00Z", "soon", None]) | value,
    },
)


def outcome(check: Any) -> Any:
    try:
        found = check()
    except MessageRefused as refused:
        return refused.code, refused.text, refused.status, refused.sender
    content = dict(found.content)
    body = content.pop("body")
    return (
        content,
        found.deliver_at,
        body is None or (msgspec.json.decode(body) if _json(body) else body),
    )


def _json(body: str) -> bool:
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return True


@given(nearly_good, st.booleans())
def test_client_and_service_judge_alike(fields: dict[str, Any], complete: bool) -> None:
    given = {**GOOD, **fields} if complete else fields
    by_service = outcome(lambda: read_message(msgspec.json.encode(given), LIMIT))
    assert outcome(lambda: check_message(given, LIMIT)) == by_service


def test_a_checked_message_knows_its_key() -> None:
    message = check_message({**GOOD, "messageId": "a#b%"})
    assert key_parts(message.key) == [message.content[name] for name in KEY]
    assert message.content["timestamp"] == "2026-01-31T08:00:00.000Z"


@pytest.mark.parametrize("body", [{"a": float("nan")}, {"a": {1, 2}}, [object()], {"a": "\ud800"}])
def test_a_body_that_is_no_json_is_refused(body: Any) -> None:
    with pytest.raises(MessageRefused, match="Invalid body"):
        check_message({**GOOD, "body": body})


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("NaN", "text/plain; charset=utf-8"),
        ("[1]", "application/json"),
        ('{"a":', "text/plain; charset=utf-8"),
    ],
)
def test_text_that_is_json_is_sent_as_such(body: str, kind: str) -> None:
    assert check_message({**GOOD, "body": body}).content["headers"] == {"Content-Type": kind}
