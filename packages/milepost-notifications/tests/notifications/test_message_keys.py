"""Keys of messages: the client's own escaping is that of the ledger's keys."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from milepost.core.values import key_text
from milepost_client import KEY, Message
from milepost_client.message import joined_key

# Parts in which escapes are likely.
PART = st.text() | st.text("#%2350a", max_size=12)


@given(st.lists(PART, max_size=6))
@example(["%23", "#", "%", "%25#"])
def test_the_client_escapes_keys_as_the_ledger_does(parts: list[str]) -> None:
    key = joined_key(parts)
    assert key == key_text.joined_key(parts)
    if parts:
        assert key_text.key_parts(key) == parts


@given(st.tuples(PART, PART, PART, PART))
def test_the_key_of_a_message_is_taken_apart_into_its_fields(
    values: tuple[str, str, str, str],
) -> None:
    message = Message(dict(zip(KEY, values, strict=True)))
    assert tuple(key_text.key_parts(message.key)) == values
