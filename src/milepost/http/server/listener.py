"""HTTP listener: uvicorn in a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn

from milepost.core.errors import ConfigMistake
from milepost.http.server.timeouts import ConnectionTimeouts

GRACE_S = 3


class Server:
    """Serves an ASGI application at an address until it is stopped. `url` is the address, once it has started."""

    def __init__(self, app: Any, host: str, port: int, protocol: type[ConnectionTimeouts] = ConnectionTimeouts) -> None:
        self._socket = _bound(host, port)
        self.host, self.port = host, self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            log_level="error",
            http=protocol,
            ws="none",
            loop="auto",  # uvloop, where it is installed
            timeout_keep_alive=15,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http-server", daemon=True)

    def start(self) -> None:
        """Returns when calls are answered."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.01)
        if not self._server.started:
            raise ConfigMistake(f"the server could not be started at {self.url}; the log says why")

    def stop(self) -> None:
        """Waits a short time for running calls."""
        self._server.should_exit = True
        self._thread.join(GRACE_S + 2)
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio checks the name of the socket: only then are answers in two parts not delayed until the client acknowledges the first.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigMistake(
            f"nothing can listen at {host}:{port}: {error.strerror}; give another address with --listen HOST:PORT"
        ) from None
    found.listen(512)
    return found
