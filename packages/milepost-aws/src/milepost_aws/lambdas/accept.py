"""Accept function: the applications' endpoints that submit items, such as POST /message, behind an
HTTP API of API Gateway.

It serves those endpoints alone, so that its role can be narrow: endpoints and pages for people
belong to `milepost up`. Callers need an API key of Milepost; without any key in the ledger every
call is refused.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from milepost.application.declaration import ConfiguredApplication
from milepost.core.errors import ConfigMistake, LedgerError
from milepost.http.protocol.endpoint import Endpoint
from milepost.http.server.application import make_app
from milepost.http.server.applications import application_endpoints
from milepost.http.state.state import ServerState
from milepost_aws.lambdas.start import LambdaContext, Opened, called, opened
from milepost_net.background import new_event_loop


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer a request in API Gateway's format 2.0, in the same format. Items are durable in the
    ledger before the answer."""
    with called(context):
        ready = opened()
        answer = ready.part(AcceptContainer).answer(event)
        with suppress(LedgerError):
            ready.beat(context, {"accept": ""})
        return answer


def accepting_endpoints(applications: Iterable[ConfiguredApplication[Any]]) -> list[Endpoint]:
    """The endpoints of applications that submit items, and the preflight requests for them."""
    applications = list(applications)
    wanted = {(part.method, part.path) for one in applications for part in one.accepting}
    preflights = {("OPTIONS", path) for _, path in wanted}
    return [
        one
        for one in application_endpoints(applications, [])
        if (one.method, one.path) in wanted | preflights
    ]


class AcceptContainer:
    """The ASGI application and its event loop; both live as long as the container."""

    def __init__(self, ready: Opened) -> None:
        endpoints = accepting_endpoints(ready.applications)
        if not endpoints:
            raise ConfigMistake(
                "no application of MILEPOST_APPLICATIONS has an endpoint with the scope 'submit'"
            )
        self._app = make_app(ServerState(ready.ctx, applications=ready.applications), endpoints)
        self._loop = asyncio.Runner(loop_factory=new_event_loop)

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Call the application with the request, and wait for the whole answer."""
        return self._loop.run(self._call(event))

    async def _call(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = event.get("body") or ""
        given = base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
        received = False
        status, headers, sent = 500, [], bytearray()

        async def receive() -> dict[str, Any]:
            nonlocal received
            if received:
                return {"type": "http.disconnect"}
            received = True
            return {"type": "http.request", "body": given, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message["headers"])
            else:
                sent.extend(message.get("body", b""))

        await self._app(scope_of(event), receive, send)
        return response_of(status, headers, bytes(sent))


def scope_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """The ASGI scope of a request in format 2.0. A stage other than $default is part of the path
    there, and is left out here."""
    request = event["requestContext"]
    http = request["http"]
    path = event["rawPath"]
    stage = request.get("stage", "$default")
    if stage != "$default" and path.startswith(f"/{stage}/"):
        path = path.removeprefix(f"/{stage}")
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in event.get("headers", {}).items()
    ]
    if event.get("cookies"):
        headers.append((b"cookie", "; ".join(event["cookies"]).encode("latin-1", "replace")))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": http["method"].upper(),
        "scheme": "https",
        "path": unquote(path),
        "raw_path": path.encode("ascii", "replace"),
        "root_path": "",
        "query_string": event.get("rawQueryString", "").encode("ascii", "replace"),
        "headers": headers,
        "server": (request.get("domainName", ""), 443),
        "client": (http.get("sourceIp", ""), 0),
    }


def response_of(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> dict[str, Any]:
    """An answer in format 2.0: text as it is, anything else in base64."""
    named: dict[str, str] = {}
    for name, value in headers:
        text = value.decode("latin-1")
        key = name.decode("latin-1").lower()
        named[key] = f"{named[key]}, {text}" if key in named else text
    try:
        return {
            "statusCode": status,
            "headers": named,
            "body": body.decode(),
            "isBase64Encoded": False,
        }
    except UnicodeDecodeError:
        return {
            "statusCode": status,
            "headers": named,
            "body": base64.b64encode(body).decode(),
            "isBase64Encoded": True,
        }
