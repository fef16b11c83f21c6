"""Deaths at AWS calls: a process ends at a call, before it is made or after it was carried out, and never does anything again."""

from __future__ import annotations

import functools
import sys
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from fault_scene import Process, Scene, Turn

Site = tuple[str, ...]
"""Which call it is: the operation, and the functions of ours that led to it, outermost first."""


class Death(BaseException):
    """The process is gone; no `except Exception` holds that up."""


class Reaper:
    """Follows one process after the other, and ends each at the next call that was planned; `sites` are all calls met, in order."""

    def __init__(self, scene: Scene, doomed: set[Site], *, after: bool) -> None:
        self.scene, self.doomed, self.after = scene, doomed, after
        self.sites: dict[Site, None] = {}
        self.deaths: list[Site] = []
        self._process = self._born()

    def process(self) -> Process:
        return self._process

    def careful(self, turn: Turn) -> None:
        """Take a turn; after a death the leases of the dead run out, and a new process stands in its place."""
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
                handler = functools.partial(self._before_send, alive, made)
                made.meta.events.register("before-send", handler, unique_id="reaper")
                return made

            requests.client = client

        return Process(self.scene, attach)

    def _before_send(self, alive: list[bool], client: Any, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        if not alive[0]:
            raise Death("it is dead already")
        site = _site(event_name.rsplit(".", 1)[1])
        self.sites.setdefault(site)
        if site not in self.doomed:
            return None
        self.doomed.discard(site)
        self.deaths.append(site)
        alive[0] = False
        if self.after:
            client._endpoint.http_session.send(request)
        raise Death(" > ".join(site))


def _site(operation: str) -> Site:
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if "/milepost/" in path and not path.endswith(("/client.py", "/death.py")) and not name.startswith("<"):
            found.append(f"{path.rpartition('/')[2].removesuffix('.py')}.{name}")
        frame = frame.f_back  # type: ignore[assignment]
    return (operation, *reversed(found))
