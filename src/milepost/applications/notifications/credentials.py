"""Credentials of destinations: the headers that prove who calls, made from secrets in the environment or in files."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from urllib.parse import quote, urlencode

from msgspec import Struct

import milepost as mp
from milepost import net
from milepost.applications.notifications.destinations import Destination
from milepost.applications.notifications.settings import BasicAuth, BearerAuth, HeadersAuth, OAuth2Auth, read_secret

EARLY_S = 30.0
"""A token is fetched anew so long before it expires, or at half of its life if that is shorter."""
USUAL_LIFE_S = 300.0
"""The life of a token whose answer does not say one."""
LARGEST_ANSWER = 65_536


class Token(Struct, frozen=True):
    """A cached access token, and when it is to be fetched anew (seconds of a monotonic clock)."""

    text: str
    until: float


class TokenRefused(mp.MilepostError):
    """The token endpoint gave no token: it refused the client, or its answer is none."""


class Credentials:
    """Makes the secret headers of a destination. Tokens are cached in memory, one for each destination; no secret is stored or shown."""

    def __init__(self, client: net.Client, ticks: Callable[[], float]) -> None:
        self._client, self._ticks = client, ticks
        self._tokens: dict[str, Token] = {}
        self._fetching: dict[str, asyncio.Lock] = {}

    async def headers(self, destination: Destination) -> dict[str, str]:
        """The headers; raises ConfigMistake for a secret that is missing, net.NetError or TokenRefused if there is no token."""
        if isinstance(destination.auth, OAuth2Auth):
            return {"Authorization": f"Bearer {await self._token(destination, destination.auth)}"}
        return self._static(destination)

    def _static(self, destination: Destination) -> dict[str, str]:
        """The headers that need no token."""
        auth, place = destination.auth, f"destinations.{destination.name}.auth"
        if isinstance(auth, HeadersAuth):
            found = {name: read_secret(env, None, f"{place}.env.{name}") or "" for name, env in auth.env.items()}
            return found | {name: read_secret(None, file, f"{place}.file.{name}") or "" for name, file in auth.file.items()}
        if isinstance(auth, BearerAuth):
            return {"Authorization": f"Bearer {_needed(read_secret(auth.token_env, auth.token_file, f'{place}.token'), f'{place}.token')}"}
        if isinstance(auth, BasicAuth):
            pair = f"{auth.username}:{_password(destination, auth)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        if isinstance(auth, OAuth2Auth):
            _client_secret(destination, auth)
        return {}

    def known(self, destination: Destination) -> list[str]:
        """The secrets of a destination, as they are configured and as they appear on the wire, so that they can be left out of records."""
        token = self._tokens.get(destination.name)
        found = [] if token is None else [token.text]
        try:
            found += [secret.removeprefix("whsec_") for secret in _signing_secrets(destination)]
            found += [value.removeprefix("Bearer ").removeprefix("Basic ") for value in self._static(destination).values()]
            if isinstance(destination.auth, BasicAuth):
                found.append(_password(destination, destination.auth))
            if isinstance(destination.auth, OAuth2Auth):
                found.append(_client_secret(destination, destination.auth))
        except mp.ConfigMistake:
            pass  # a secret that is missing cannot be repeated
        return found

    def check(self, destination: Destination) -> None:
        """Read every secret of a destination once; raises ConfigMistake for one that is missing or no secret."""
        self._static(destination)
        self.signature(destination, "check", b"", 0.0)

    def forget(self, destination: Destination) -> bool:
        """Drop the cached token, since the partner refused it. False: the destination uses none."""
        return self._tokens.pop(destination.name, None) is not None

    def signature(self, destination: Destination, message_id: str, body: bytes, at: float) -> dict[str, str]:
        """The headers that sign a request, with both secrets while one replaces the other; none where the destination has no secret.
        Raises ConfigMistake for a secret that is missing or is none."""
        secrets = _signing_secrets(destination)
        try:
            return net.webhook_headers(secrets, message_id, body, at=at) if secrets else {}
        except mp.UsageError as error:
            raise mp.ConfigMistake(f"destinations.{destination.name}.signing_secret: {error}") from None

    async def _token(self, destination: Destination, auth: OAuth2Auth) -> str:
        lock = self._fetching.setdefault(destination.name, asyncio.Lock())
        async with lock:  # tries that start together fetch one token
            there = self._tokens.get(destination.name)
            if there is None or there.until <= self._ticks():
                there = self._tokens[destination.name] = await self._fetched(destination, auth)
            return there.text

    async def _fetched(self, destination: Destination, auth: OAuth2Auth) -> Token:
        secret = _client_secret(destination, auth)
        form = {"grant_type": "client_credentials"}
        form |= {name: value for name, value in (("scope", auth.scope), ("audience", auth.audience)) if value is not None}
        pair = f"{quote(auth.client_id, safe='')}:{quote(secret, safe='')}"  # as RFC 6749 encodes both for Basic
        answer = await self._client.request_async(
            "POST",
            auth.token_url,
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            },
            body=urlencode(form).encode(),
            timeouts=destination.timeouts,
            largest=LARGEST_ANSWER,
            tls=destination.tls,
        )
        if not answer.ok:
            raise TokenRefused(f"the token endpoint of {destination.name} answered {answer.status}")
        try:
            found = json.loads(answer.body)
            text, life = str(found["access_token"]), float(found.get("expires_in", USUAL_LIFE_S))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise TokenRefused(f"the answer of the token endpoint of {destination.name} has no access_token") from None
        return Token(text, self._ticks() + max(life - EARLY_S, life / 2))


def _needed(secret: str | None, place: str) -> str:
    if secret is None:
        raise mp.ConfigMistake(f"{place}: name the variable or the file that holds it ({place.rpartition('.')[2]}_env or _file)")
    return secret


def _client_secret(destination: Destination, auth: OAuth2Auth) -> str:
    place = f"destinations.{destination.name}.auth.client_secret"
    return _needed(read_secret(auth.client_secret_env, auth.client_secret_file, place), place)


def _password(destination: Destination, auth: BasicAuth) -> str:
    place = f"destinations.{destination.name}.auth.password"
    return _needed(read_secret(auth.password_env, auth.password_file, place), place)


def _signing_secrets(destination: Destination) -> list[str]:
    """The secret that signs, and the one before it while it is being replaced."""
    names = ("signing_secret", "previous_signing_secret")
    places = (f"destinations.{destination.name}.{name}" for name in names)
    found = (read_secret(env, file, place) for (env, file), place in zip(destination.signing, places, strict=False))
    return [secret for secret in found if secret is not None]
