"""A stand-in for a mail server: it accepts every mail by SMTP, and keeps each as a file that mail
programs open."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from types import TracebackType

LONGEST_LINE = 2_000
LARGEST = 30_000_000
"""Bytes of one mail."""


class MailboxStandIn:
    """`with MailboxStandIn(folder) as mailbox:` accepts mails at `mailbox.port`. Each becomes
    folder/NUMBER.eml, and is reported to `seen` with its subject."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        seen: Callable[[Path, str], None] = lambda file, subject: None,
    ) -> None:
        self._folder, self._seen = folder, seen
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self._keep)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address, as [deposits.mail] smtp has it."""
        return f"smtp://127.0.0.1:{self.port}"

    @property
    def files(self) -> list[Path]:
        return sorted(self._folder.glob("*.eml"))

    def _keep(self, content: bytes) -> None:
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            last = max((int(file.stem) for file in self.files if file.stem.isdecimal()), default=0)
            file = self._folder / f"{last + 1:04}.eml"
            file.write_bytes(content)
            self._seen(file, str(message_from_bytes(content, policy=default)["Subject"]))

    def __enter__(self) -> MailboxStandIn:
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="mailbox", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], keep: Callable[[bytes], None]) -> None:
        self.keep = keep
        super().__init__(address, _Session)


class _Session(socketserver.StreamRequestHandler):
    """One connection: the commands of RFC 5321 that every client uses, without extensions but
    SMTPUTF8 and 8BITMIME."""

    server: _Server
    timeout = 300

    def handle(self) -> None:
        self._say("220 mailbox stand-in")
        while line := self.rfile.readline(LONGEST_LINE):
            verb = line.strip().upper().split(b" ")[0].partition(b":")[0]
            if verb == b"EHLO":
                self._say("250-mailbox stand-in", "250-8BITMIME", "250 SMTPUTF8")
            elif verb == b"DATA":
                self._say("354 end with a line that has a dot alone")
                self._data()
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            elif verb in (b"HELO", b"MAIL", b"RCPT", b"RSET", b"NOOP"):
                self._say("250 ok")
            else:
                self._say("502 not implemented")

    def _data(self) -> None:
        lines: list[bytes] = []
        size = 0
        while (line := self.rfile.readline()) and line.rstrip(b"\r\n") != b".":
            size += len(line)
            if size <= LARGEST:
                lines.append(line[1:] if line.startswith(b".") else line)
        if not line:
            return  # the connection broke: the client sends the mail again
        if size > LARGEST:
            self._say("552 the mail is too large")
            return
        self.server.keep(b"".join(lines))
        self._say("250 kept")

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())
