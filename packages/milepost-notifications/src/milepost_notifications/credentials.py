"""Credentials of destinations: the headers that prove who calls, made from secrets in the
environment or in files."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
from collections.abc import Callable
from urllib.parse import quote, urlencode

from msgspec import Struct

import milepost as mp
import milepost_net as net
from milepost_notifications.destinations import Destination
from milepost_notifications.outcomes import LOOKUP_WAITS
from milepost_notifications.settings import (
    BasicAuth,
    BearerAuth,
    HeadersAuth,
    OAuth2Auth,
    read_secret,
)

EARLY_S = 30.0
"""A token is fetched anew so long before it expires, or at half of its life if that is shorter."""
USUAL_LIFE_S = 300.0
"""The life of a token whose answer does not say one."""
LONGEST_LIFE_S = 86_400.0
SIGNING = ("signing_secret", "previous_signing_secret")
"""The settings of the secrets in `Destination.signing`, without `_env` and `_file`."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
LARGEST_ANSWER = 65_536


class Token(Struct, frozen=True):
    """A cached access token, and when it is to be fetched anew (seconds of a monotonic clock)."""

    text: str
    until: float


class TokenRefused(mp.MilepostError):
    """The token endpoint gave no token: it refused the client, or its answer is none."""


class Credentials:
    """Makes the secret headers of a destination. Tokens are cached in memory, one for each
    destination; no secret is stored or shown."""

    def __init__(self, client: net.Client, ticks: Callable[[], float]) -> None:
        self._client, self._ticks = client, ticks
        self._tokens: dict[str, Token] = {}
        self._fetching: dict[str, asyncio.Task[Token]] = {}

    async def headers(self, destination: Destination) -> dict[str, str]:
        """The headers; raises ConfigMistake for a secret or a certificate that is missing or cannot
        be used, TokenRefused if there is no token."""
        _check_tls(destination)
        if isinstance(destination.auth, OAuth2Auth):
            return {"Authorization": f"Bearer {await self._token(destination, destination.auth)}"}
        return self._static(destination)

    def _static(self, destination: Destination) -> dict[str, str]:
        """The headers that need no token. Raises ConfigMistake, without the secret, if one cannot
        be sent."""
        if destination.auth is None:
            return {}
        try:
            return net.checked_headers(self._read(destination))
        except net.InvalidRequest as error:
            raise mp.ConfigMistake(f"destinations.{destination.name}.auth: {error}") from None

    def _read(self, destination: Destination) -> dict[str, str]:
        auth, place = destination.auth, f"destinations.{destination.name}.auth"
        if isinstance(auth, HeadersAuth):
            found = {
                name: read_secret(env, None, f"{place}.env.{name}") or ""
                for name, env in auth.env.items()
            }
            return found | {
                name: read_secret(None, file, f"{place}.file.{name}") or ""
                for name, file in auth.file.items()
            }
        if isinstance(auth, BearerAuth):
            return {"Authorization": f"Bearer {_secret(destination, 'token')}"}
        if isinstance(auth, BasicAuth):
            pair = f"{auth.username}:{_secret(destination, 'password')}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        if isinstance(auth, OAuth2Auth):
            _secret(destination, "client_secret")
        return {}

    def known(self, destination: Destination) -> list[str]:
        """The secrets of a destination, as they are configured and as they appear on the wire, so
        that they can be left out of records."""
        if destination.auth is None and not destination.signing:
            return []
        token = self._tokens.get(_token_name(destination))
        found = [] if token is None else [token.text]
        try:
            found += [secret.removeprefix("whsec_") for secret in _signing_secrets(destination)]
            found += [
                value.removeprefix("Bearer ").removeprefix("Basic ")
                for value in self._static(destination).values()
            ]
            if isinstance(destination.auth, BasicAuth):
                found.append(_secret(destination, "password"))
            if isinstance(destination.auth, OAuth2Auth):
                found.append(_secret(destination, "client_secret"))
        except mp.ConfigMistake:
            pass  # a secret that is missing cannot be repeated
        return found

    def check(self, destination: Destination) -> None:
        """Read every secret and certificate of a destination once; raises ConfigMistake for one
        that is missing or cannot be used."""
        _check_tls(destination)
        self._static(destination)
        self.signature(destination, "check", b"", 0.0)

    def forget(self, destination: Destination) -> bool:
        """Drop the cached token, since the partner refused it. False: the destination uses none."""
        return self._tokens.pop(_token_name(destination), None) is not None

    def signature(
        self, destination: Destination, message_id: str, body: bytes, at: float
    ) -> dict[str, str]:
        """The headers that sign a request, with both secrets while one replaces the other; none
        where the destination has no secret. Raises ConfigMistake for a secret that is missing or is
        none."""
        secrets = _signing_secrets(destination)
        try:
            return net.webhook_headers(secrets, message_id, body, at=at) if secrets else {}
        except net.NetUsageError:
            raise mp.ConfigMistake(_wrong_signing_secret(destination)) from None

    async def _token(self, destination: Destination, auth: OAuth2Auth) -> str:
        name = _token_name(destination)
        there = self._tokens.get(name)
        if there is None or there.until <= self._ticks():
            loop, fetch = asyncio.get_running_loop(), self._fetching.get(name)
            if fetch is None or fetch.done() or fetch.get_loop() is not loop:
                # Tries that start together wait for one token, and share its failure: asked in
                # turn, an endpoint that hangs would hold up the last of them many times as long.
                fetch = self._fetching[name] = loop.create_task(self._fetched(destination, auth))
                fetch.add_done_callback(_noticed)
            there = await asyncio.shield(fetch)
        return there.text

    async def _fetched(self, destination: Destination, auth: OAuth2Auth) -> Token:
        secret = _secret(destination, "client_secret")
        form = {"grant_type": "client_credentials"}
        form |= {
            name: value
            for name, value in (("scope", auth.scope), ("audience", auth.audience))
            if value is not None
        }
        pair = f"{quote(auth.client_id, safe='')}:{quote(secret, safe='')}"  # as RFC 6749 encodes both for Basic
        try:
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
        except net.NetError as error:
            if error.kind == LOOKUP_WAITS:
                raise  # the message waits, as for its own host
            # It says nothing about the message, which was not sent.
            raise TokenRefused(
                f"the token endpoint of {destination.name} gave no answer: {error}"
            ) from None
        if not answer.ok:
            raise TokenRefused(f"the token endpoint of {destination.name} answered {answer.status}")
        try:
            found = json.loads(answer.body)
            text, said = found["access_token"], found.get("expires_in")
            life = USUAL_LIFE_S if said is None else float(said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            raise TokenRefused(
                f"the answer of the token endpoint of {destination.name} has no access_token"
            ) from None
        if not isinstance(text, str) or not _TOKEN.fullmatch(text):
            raise TokenRefused(
                f"the token endpoint of {destination.name} gave an access_token that cannot be sent"
            )
        life = min(life, LONGEST_LIFE_S) if math.isfinite(life) else USUAL_LIFE_S
        token = self._tokens[_token_name(destination)] = Token(
            text, self._ticks() + max(life - EARLY_S, life / 2)
        )
        return token


def _token_name(destination: Destination) -> str:
    """The name of a destination's token in the cache. One that is replaced by another client or
    endpoint must not get the old token."""
    return f"{destination.name} {destination.auth!r}"


def _check_tls(destination: Destination) -> None:
    try:
        if destination.tls is not None:
            destination.tls.check()
    except net.NetUsageError as error:
        raise mp.ConfigMistake(f"destinations.{destination.name}.tls: {error}") from None


def _noticed(fetch: asyncio.Task[Token]) -> None:
    """Read the error of a fetch: the calls that wait for it get it, and if none waits, asyncio must
    not report it as never retrieved."""
    if not fetch.cancelled():
        fetch.exception()


def _secret(destination: Destination, name: str) -> str:
    """A secret that the destination's credentials must have, by its name in their settings. Raises
    ConfigMistake if it is not there."""
    place = f"destinations.{destination.name}.auth.{name}"
    secret = read_secret(
        getattr(destination.auth, f"{name}_env"), getattr(destination.auth, f"{name}_file"), place
    )
    if secret is None:
        raise mp.ConfigMistake(
            f"{place}: name the variable or the file that holds it ({name}_env or _file)"
        )
    return secret


def _wrong_signing_secret(destination: Destination) -> str:
    """A sentence about the signing secret of a destination that cannot be used: the setting that
    names it, and why."""
    for name, (env, file) in zip(SIGNING, destination.signing, strict=False):
        place = f"destinations.{destination.name}.{name}"
        secret = read_secret(env, file, place)
        try:
            net.webhook_headers([] if secret is None else [secret], "check", b"", at=0.0)
        except net.NetUsageError as error:
            return f"{place}_{'file' if env is None else 'env'}: {file if env is None else f'the variable {env}'}: {error}"
    return f"destinations.{destination.name}: its signing secrets cannot be used"


def _signing_secrets(destination: Destination) -> list[str]:
    """The secret that signs, and the one before it while it is being replaced."""
    places = (f"destinations.{destination.name}.{name}" for name in SIGNING)
    found = (
        read_secret(env, file, place)
        for (env, file), place in zip(destination.signing, places, strict=False)
    )
    return [secret for secret in found if secret is not None]
