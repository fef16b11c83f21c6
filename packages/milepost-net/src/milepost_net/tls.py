"""TLS of connections. Certificates are always verified; there is no switch to turn that off."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from functools import lru_cache

from milepost_net.errors import NetUsageError

HTTP = "http/1.1"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """Trusted certificates, and the client's own. `ca_file`: trust the authorities in this PEM file
    instead of the system's. `certificate_file` and `key_file` (PEM): this client's own certificate,
    for partners that ask for one (mutual TLS). A file that is replaced is read again for the next
    connection; while the new files cannot be used, the old ones are."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise NetUsageError("Tls(key_file=…) needs certificate_file=… too")

    def check(self) -> None:
        """Read the files; raises NetUsageError that names the one which cannot be used."""
        _present_context(self, HTTP)


def context_of(tls: Tls, protocol: str | None = HTTP) -> ssl.SSLContext:
    """The context for these files, and for the protocol that TLS is to name (ALPN; None: it names
    none). Files are replaced one after the other: while a new certificate waits for its key, the
    context of before is used. Raises NetUsageError that names the file which cannot be used if
    there is none."""
    try:
        context = _used[tls, protocol] = _present_context(tls, protocol)
    except NetUsageError as error:
        before = _used.get((tls, protocol))
        if before is None:
            raise
        log.warning("%s; the certificates of before are used", error)
        return before
    return context


def _present_context(tls: Tls, protocol: str | None) -> ssl.SSLContext:
    return _context(
        tls, protocol, tuple(map(_changed_at, (tls.ca_file, tls.certificate_file, tls.key_file)))
    )


@lru_cache(256)
def _context(tls: Tls, protocol: str | None, changed_at: tuple[int, ...]) -> ssl.SSLContext:
    """The context is made once for the files as they are: `changed_at` is a part of its name in the
    cache."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise NetUsageError(f"Tls(ca_file={tls.ca_file!r}): {_why(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    if tls.certificate_file is not None:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, _no_password)
        except (OSError, ssl.SSLError) as error:
            raise NetUsageError(
                f"Tls(certificate_file={tls.certificate_file!r}, key_file={tls.key_file!r}): {_why(error)}"
            ) from None
    return context


_used: dict[tuple[Tls, str | None], ssl.SSLContext] = {}
"""The contexts that were used last."""


def _changed_at(file: str | None) -> int:
    """When a file was last changed, in nanoseconds. 0: there is none; then it cannot be read
    either."""
    try:
        return 0 if file is None else os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _no_password() -> str:
    """Without this, OpenSSL would ask for the password of an encrypted key at the terminal."""
    raise NetUsageError("Tls(key_file=…): the key is encrypted; give one without a password")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a usable PEM file"
