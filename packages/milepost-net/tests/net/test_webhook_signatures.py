"""Standard Webhooks signatures: the specification's known answer, rotation, and all that must be
refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost_net as net

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1_614_265_330
BODY = b'{"test": 2432232314}'
KNOWN = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_known_answer() -> None:
    headers = net.webhook_headers(SECRET, ID, BODY, at=AT + 0.9)
    assert headers == {"webhook-id": ID, "webhook-timestamp": str(AT), "webhook-signature": KNOWN}
    assert net.verify(SECRET, headers, BODY, now=AT) == ID
    assert (
        net.webhook_headers(SECRET.removeprefix("whsec_"), ID, BODY, at=AT)["webhook-signature"]
        == KNOWN
    )


def test_while_a_secret_is_replaced_both_sign_and_either_is_enough() -> None:
    new = net.new_secret()
    headers = net.webhook_headers([new, SECRET], ID, BODY, at=AT)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert headers["webhook-signature"].endswith(KNOWN)
    for accepted in (SECRET, new, [net.new_secret(), new]):
        assert net.verify(accepted, headers, BODY, now=AT) == ID
    with pytest.raises(net.SignatureRefused, match="no signature matches"):
        net.verify(net.new_secret(), headers, BODY, now=AT)


@given(st.binary(), st.integers(0, 10_000_000_000), st.binary(min_size=24, max_size=64))
def test_what_is_signed_is_verified_and_a_changed_byte_is_not(
    body: bytes, at: int, key: bytes
) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    headers = net.webhook_headers(secret, "evt_1", body, at=at)
    upper = {name.title(): value for name, value in headers.items()}
    assert net.verify(secret, upper, body, now=at) == "evt_1"
    for changed in (
        (headers, body + b"x"),
        ({**headers, "webhook-id": "evt_2"}, body),
        ({**headers, "webhook-timestamp": str(at + 1)}, body),
        (
            {**headers, "webhook-signature": headers["webhook-signature"].replace("v1,", "v1a,")},
            body,
        ),
        ({**headers, "webhook-signature": "v1,"}, body),
        ({**headers, "webhook-signature": "v1,é v1,\ud800"}, body),
        ({**headers, "webhook-id": "é"}, body),
    ):
        with pytest.raises(net.SignatureRefused):
            net.verify(secret, *changed, now=at)


@pytest.mark.parametrize("off", [-301, 301, 86_400])
def test_an_old_request_is_refused(off: int) -> None:
    headers = net.webhook_headers(SECRET, ID, BODY, at=AT)
    with pytest.raises(net.SignatureRefused, match="more than 300 s"):
        net.verify(SECRET, headers, BODY, now=AT + off)
    assert net.verify(SECRET, headers, BODY, now=AT + off, tolerance=100_000) == ID


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_header_is_named(name: str, value: str | None) -> None:
    headers: dict[str, str] = net.webhook_headers(SECRET, ID, BODY, at=AT)
    del headers[name]
    if value is not None:
        headers[name] = value
    with pytest.raises(net.SignatureRefused, match=name):
        net.verify(SECRET, headers, BODY, now=AT)


@pytest.mark.parametrize("at", ["soon", "1.5", "-1", "1" * 400, "١٢"])
def test_a_time_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(net.SignatureRefused, match="not a number of seconds"):
        net.verify(
            SECRET,
            {"webhook-id": ID, "webhook-timestamp": at, "webhook-signature": KNOWN},
            BODY,
            now=AT,
        )


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "sesame!",
        "whsec_" + "A" * 200,
        [],
        [SECRET, "short"],
        7,
        [b"x"],
    ],
)
def test_a_secret_that_cannot_be_is_refused_without_its_text(secret: object) -> None:
    with pytest.raises(net.NetUsageError) as caught:
        net.webhook_headers(secret, ID, BODY)  # type: ignore[arg-type]
    assert "sesame" not in str(caught.value)
    assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a\nb", "ü"])
def test_an_id_that_cannot_be_signed_is_refused(name: str) -> None:
    with pytest.raises(net.NetUsageError, match="webhook id"):
        net.webhook_headers(SECRET, name, BODY)


def test_a_new_secret_is_new_and_of_the_usual_form() -> None:
    first, second = net.new_secret(), net.new_secret()
    assert first != second
    assert first.startswith("whsec_")
    assert len(base64.b64decode(first.removeprefix("whsec_"))) == 32
