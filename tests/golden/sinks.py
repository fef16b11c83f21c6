"""Where subscribers of the golden history send events: a web server on loopback and a stand-in for
the SNS client."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Any


class WebSink:
    """Keeps the requests that it gets; runs while it is entered."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name not in ("Host", "Accept-Encoding")
                }
                sink.requests.append({"path": self.path, "headers": headers, "body": body})
                self.send_response(204)
                self.send_header("Connection", "close")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    def __enter__(self) -> WebSink:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Topic:
    """Takes every message, as the SNS client would, and keeps them."""

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []

    def publish_batch(self, **request: Any) -> dict[str, Any]:
        self.published.append(request)
        return {
            "Successful": [{"Id": entry["Id"]} for entry in request["PublishBatchRequestEntries"]],
            "Failed": [],
        }
