"""Headers of every answer, errors too: security headers for browsers, and no caching. Also the media type of a body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
ALWAYS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with it, browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
KEPT = (b"cache-control", b"no-store")
"""Default, unless an answer sets its own caching, as a style sheet does."""
_OURS = [(name.lower().encode(), value.encode()) for name, value in ALWAYS.items()]
_REPLACED = frozenset(name for name, _ in _OURS) | {b"server"}


class Headers:
    """ASGI middleware around the whole application, so that every answer has the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_ours(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, send_with)


def with_ours(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """An answer's headers (with lower-case names), with ours in place of headers of the same names."""
    kept = [header for header in headers if header[0] not in _REPLACED]
    if not any(name == KEPT[0] for name, _ in kept):
        kept.append(KEPT)
    return kept + _OURS


def media_type(headers: Mapping[str, str]) -> str:
    """The media type of a body, without its parameters; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def attachment(name: str) -> dict[str, str]:
    """The header of a response that the browser saves as a file of this name; a header allows ASCII only."""
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    shown = f'filename="{name}"' if plain else f"filename*=UTF-8''{quote(name, safe='')}"
    return {"Content-Disposition": f"attachment; {shown}"}
