"""The shortest way of a message: accepted over HTTP, delivered to a partner."""

from __future__ import annotations

from tests.notifications.partners import Partner, answers, message, service


def test_a_message_is_accepted_and_delivered_with_its_ids() -> None:
    with Partner(answers(200)) as partner, service() as at:
        sent = message(f"{partner.url}hook?a=1", method="put", headers={"X-Colour": "red"})
        answer = at.post(sent, headers={"X-Correlation-ID": "c-1"})
        assert (
            answer.status,
            answer.body["requestId"],
            answer.body["storedMessage"]["status"],
        ) == (200, "c-1", "QUEUED")
        at.milepost.run(until_idle=0)
        [request] = partner.requests
        assert (request.line, request.body) == ("PUT /hook?a=1 HTTP/1.1", b'{"paid":true}')
        wanted = {
            "x-colour": "red",
            "x-message-id": "m-1",
            "x-sender-id": "shop",
            "x-correlation-id": "c-1",
            "x-delivery-attempt": "1",
        }
        assert wanted.items() <= request.headers.items()
        assert at.item(sent)["status"] == "COMPLETED"
