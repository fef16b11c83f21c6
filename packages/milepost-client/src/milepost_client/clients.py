"""Clients of the notifications service: one for threads, one for event loops, with the same
methods."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

import milepost_net as net
from milepost_client.exchange import (
    Body,
    ClientUsageError,
    Conversation,
    GivenMessage,
    HttpCall,
    MessageReceipt,
    MessageState,
    RetryPolicy,
    checked_message,
    reading,
    sending,
)
from milepost_client.message import INLINE_BODY

T = TypeVar("T")

KEY_ENV = "MILEPOST_KEY"
LARGEST_RECORD, ESCAPED = 1 << 20, 6
"""Bytes of an answer beside a message's body, and those that one byte of the body may take in
JSON."""
TIMEOUTS = net.Timeouts(connect=5, read=30, total=30)


class _Service:
    """The service as both clients see it: its URL, the key, the sender, and how requests are
    repeated."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        sender: str | None = None,
        retry: RetryPolicy | None = None,
        timeouts: net.Timeouts | None = None,
        largest_body: int = INLINE_BODY,
        tls: net.Tls | None = None,
    ) -> None:
        try:
            parsed = net.parse_url(url)
        except net.InvalidRequest as error:
            raise ClientUsageError(f"the service's URL: {error}") from None
        if "?" in parsed.target:
            raise ClientUsageError(
                "the service's URL has a query; give the address before /message alone"
            )
        self.url = parsed.text.rstrip("/").removesuffix("/message")
        self.sender = sender
        self._key = os.environ.get(KEY_ENV) if key is None else key
        if self._key:
            try:
                net.checked_headers({"Authorization": f"Bearer {self._key}"})
            except net.InvalidRequest as error:
                raise ClientUsageError(
                    f"the key cannot be sent (key=…, or {KEY_ENV}): {error}"
                ) from None
        self._retry, self._largest_body = retry or RetryPolicy(), largest_body
        # The operator names the host of the service: it is usually in the same network.
        largest = LARGEST_RECORD + ESCAPED * largest_body
        self._net = net.Client(
            allow_cidrs=net.ANYWHERE, timeouts=timeouts or TIMEOUTS, tls=tls, largest=largest
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _sending(
        self, given: GivenMessage, correlation_id: str | None
    ) -> Conversation[MessageReceipt]:
        message, data = checked_message(given, self._largest_body, datetime.now(UTC))
        return sending(message, data, correlation_id, self._retry, time.monotonic, random.random)

    def _reading(self, message: MessageReceipt | str) -> Conversation[MessageState]:
        key = message if isinstance(message, str) else message.key
        return reading(key, self._retry, time.monotonic, random.random)

    def _request(self, call: HttpCall) -> dict[str, Any]:
        """The arguments of a call of the HTTP client. A repeat of any of them does no harm."""
        headers = {**call.headers, "User-Agent": "milepost-client"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return {
            "method": call.method,
            "url": self.url + call.path,
            "headers": headers,
            "body": call.body,
            "repeatable": True,
        }


class MessageClient(_Service):
    """Hands over messages to a notifications service, from any number of threads.

    `url` is the service's address, such as `http://message-sender`. `key` is its API key,
    MILEPOST_KEY of the environment if none is given. `sender` is the senderId of messages that name
    none. Each message is checked by the service's own rules before it is sent, and the same request
    is repeated as `retry` says. `largest_body` is the service's limit for bodies, in bytes. Close
    it when it is no longer needed, or use `with`.
    """

    def send(
        self,
        target_url: str,
        body: Body = None,
        *,
        message_id: str | None = None,
        timestamp: str | datetime | None = None,
        sender_id: str | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        deliver_at: str | datetime | None = None,
        correlation_id: str | None = None,
    ) -> MessageReceipt:
        """Hand over a message; it is on the service's disk when this returns. Give `message_id` and
        `timestamp` if your program may send it again after a crash: with the same two it is
        delivered once. `body` is text, or an object that is sent as JSON. With `deliver_at` it is
        not delivered earlier. `correlation_id` is in the service's records and logs, and in the
        request to the partner.

        Raises MessageRefused if the message cannot be accepted, and MessageNotAccepted if the
        service cannot accept it now.
        """
        given = GivenMessage(
            target_url,
            body,
            sender_id or self.sender,
            message_id,
            timestamp,
            method,
            headers,
            deliver_at,
        )
        return self._carry_out(self._sending(given, correlation_id))

    def read(self, message: MessageReceipt | str) -> MessageState:
        """The state of a message, by its receipt or its key. Raises MessageUnknown if the service
        has none; the key needs the scope `read`."""
        return self._carry_out(self._reading(message))

    def close(self) -> None:
        """Close the connections."""
        self._net.close()

    def __enter__(self) -> MessageClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _carry_out(self, conversation: Conversation[T]) -> T:
        result: net.Response | net.NetError | None = None
        try:
            step = next(conversation)
            while True:
                if isinstance(step, HttpCall):
                    try:
                        result = self._net.request(**self._request(step))
                    except net.NetError as error:
                        result = error
                else:
                    time.sleep(step.seconds)
                    result = None
                step = conversation.send(result)
        except StopIteration as end:
            value: T = end.value
            return value


class AsyncMessageClient(_Service):
    """`MessageClient` for an event loop: the same arguments, and methods to await. Use `async
    with`, or `await client.close()`."""

    async def send(
        self,
        target_url: str,
        body: Body = None,
        *,
        message_id: str | None = None,
        timestamp: str | datetime | None = None,
        sender_id: str | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        deliver_at: str | datetime | None = None,
        correlation_id: str | None = None,
    ) -> MessageReceipt:
        """`MessageClient.send`, awaited."""
        given = GivenMessage(
            target_url,
            body,
            sender_id or self.sender,
            message_id,
            timestamp,
            method,
            headers,
            deliver_at,
        )
        return await self._carry_out(self._sending(given, correlation_id))

    async def read(self, message: MessageReceipt | str) -> MessageState:
        """`MessageClient.read`, awaited."""
        return await self._carry_out(self._reading(message))

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._net.close_async()

    async def __aenter__(self) -> AsyncMessageClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _carry_out(self, conversation: Conversation[T]) -> T:
        result: net.Response | net.NetError | None = None
        try:
            step = next(conversation)
            while True:
                if isinstance(step, HttpCall):
                    try:
                        result = await self._net.request_async(**self._request(step))
                    except net.NetError as error:
                        result = error
                else:
                    await asyncio.sleep(step.seconds)
                    result = None
                step = conversation.send(result)
        except StopIteration as end:
            value: T = end.value
            return value
