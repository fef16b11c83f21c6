"""Name resolution: one lookup for many callers, and a lookup that hangs holds up no other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.net.partner import PATIENCE

from milepost.net.resolver import SystemResolver


class Names:
    """Stands in for the system: names that begin with "slow" are answered when `go` is set, "nowhere" never is."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.go = threading.Event()

    def getaddrinfo(self, host: str, *rest: Any, **options: Any) -> list[Any]:
        self.asked[host] += 1
        if host.startswith("slow"):
            self.go.wait(PATIENCE)
        if host == "nowhere":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "odd":
            raise UnicodeError("label too long")
        found = [("192.0.2.1", 0), ("192.0.2.1", 0), ("2001:db8::1", 0, 0, 0)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.go.set()


def test_each_address_once_in_the_systems_order(names: Names) -> None:
    async def main() -> None:
        assert await SystemResolver()("office.example") == ["192.0.2.1", "2001:db8::1"]

    asyncio.run(main())


@pytest.mark.parametrize("host", ["nowhere", "odd"])
def test_a_name_without_an_address_is_an_error_each_time(names: Names, host: str) -> None:
    async def main() -> None:
        resolver = SystemResolver()
        for _ in range(2):
            with pytest.raises(OSError, match=r"known|resolved"):
                await resolver(host)

    asyncio.run(main())
    assert names.asked[host] == 2


def test_callers_share_a_lookup_and_one_that_gives_up_does_not_end_it(names: Names) -> None:
    async def main() -> None:
        resolver = SystemResolver()
        calls = [asyncio.ensure_future(resolver("slow")) for _ in range(10)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        assert await resolver("office.example"), "another name is resolved meanwhile"
        names.go.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == [["192.0.2.1", "2001:db8::1"]] * 9
        await resolver("slow")

    asyncio.run(main())
    assert names.asked["slow"] == 2, "and nothing is remembered: an address may change"


def test_a_loop_that_ends_before_the_answer_is_no_error(names: Names) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await SystemResolver()("slow")

    asyncio.run(main())
    names.go.set()
    for thread in threading.enumerate():
        if thread.name == "milepost-resolve":
            thread.join(PATIENCE)
