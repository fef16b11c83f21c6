"""Process deaths at AWS calls: before the call or after it was carried out."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError
from tests.aws.ledger.faults.fault_scene import Process, Scene, Turn

Site = tuple[str, ...]
"""Which call it is: the operation, and the functions of ours that led to it, outermost first."""


class Death(BaseException):
    """The process is gone; no `except Exception` holds that up."""


class Reaper:
    """Follows one process after the other, and ends each at the next call that was planned; `sites`
    are all calls met, in order."""

    def __init__(self, scene: Scene, doomed: set[Site], *, after: bool) -> None:
        self.scene, self.doomed, self.after = scene, doomed, after
        self.sites: dict[Site, None] = {}
        self.deaths: list[Site] = []
        self._process = self._born()

    def process(self) -> Process:
        return self._process

    def careful(self, turn: Turn) -> None:
        """Take a turn; after a death the leases of the dead run out, and a new process stands in
        its place."""
        try:
            turn()
        except Death:
            self._process.close()
            self.scene.clock.advance("3m")
            self._process = self._born()

    def _born(self) -> Process:
        alive = [True]

        def attach(requests: Any) -> None:
            make = requests.client

            def client(service: str, *timeouts: Any) -> Any:
                made = make(service, *timeouts)
                if "_make_api_call" not in vars(made):
                    made._make_api_call = functools.partial(self._call, alive, made._make_api_call)
                return made

            requests.client = client

        return Process(self.scene, attach)

    def _call(
        self,
        alive: list[bool],
        send: Callable[[str, dict[str, Any]], Any],
        operation: str,
        params: dict[str, Any],
    ) -> Any:
        if not alive[0]:
            raise Death("it is dead already")
        site = _site(operation)
        self.sites.setdefault(site)
        if site not in self.doomed:
            return send(operation, params)
        self.doomed.discard(site)
        self.deaths.append(site)
        alive[0] = False
        if self.after:
            with suppress(ClientError):
                send(operation, params)
        raise Death(" > ".join(site))


def _site(operation: str) -> Site:
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if (
            "/src/milepost/" in path
            and "/testing/" not in path
            and not path.endswith(("/client.py", "/death.py"))
            and not name.startswith("<")
        ):
            found.append(f"{path.rpartition('/')[2].removesuffix('.py')}.{name}")
        frame = frame.f_back  # type: ignore[assignment]
    return (operation, *reversed(found))
