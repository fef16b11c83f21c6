"""JSON values as DynamoDB attributes: readable text, or a reference to a blob where the value is
large."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from milepost.core.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerReadOnly
from milepost.core.values.json import check_depth
from milepost.ports.blobs import Blobs

LARGEST = 4096
"""Larger values become blobs, because DynamoDB charges the whole row on every write."""

WITH_KEY = "+key"
"""Marks a stored input without its leading key fields, which the row's key attributes repeat."""

DIGEST = 32
"""Length of the digest in front of a packed history line."""
LINE_WORDS = (
    b'"error":{"category":""message":""lane":""list":""why":""attempt":"totalAttempts":"holder":"claimedAt":"round":"pass":'
    b'"reason":"noted"reason":"operator-retry"reason":"given-back"reason":"exhausted"reason":"rejected"reason":"handed-over'
    b'"reason":"not-yet"reason":"retry"reason":"lost"reason":"resent"reason":"advanced"reason":"accepted"reason":"offered'
    b'"reason":"confirmed","stage":","status":"CANCELLED"REJECTED"MAX_RETRIES_EXCEEDED"RETRY_SCHEDULED"WAITING"PROCESSING'
    b'"PENDING"COMPLETED","status":"QUEUED","to":"","by":"relay","by":"kept","output":"","offered":"{"version":2,"at":17'
)
"""Compression dictionary: text common in history lines. Never change it, or existing rows become
unreadable."""

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


class Values:
    """Writes and reads the values of one ledger; large ones by reference and digest."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def encode(self, value: Any, place: str) -> dict[str, Any]:
        """The attribute for a value. `place` names the item: a blob's name begins with it, so that
        it can go with its row."""
        return self.encode_text(_encode(value), place)

    def encode_text(self, data: bytes, place: str) -> dict[str, Any]:
        if len(data) <= LARGEST:
            return {"S": data.decode()}
        return self._to_blob(data, place)

    def pack(self, lines: Sequence[bytes], place: str) -> dict[str, Any]:
        """One attribute for many lines without line feeds; always a blob."""
        return self._to_blob(b"\n".join(lines), place, lines={"N": str(len(lines))})

    def _to_blob(self, data: bytes, place: str, **more: dict[str, str]) -> dict[str, Any]:
        digest = sha256(data).hexdigest()
        name = f"{place}/{digest[:32]}"
        try:
            self._blobs.write(name, [data])
        except OSError as error:
            raise unusable(error) from error
        return {
            "M": {
                "blob": {"S": name},
                "sha256": {"S": digest},
                "size": {"N": str(len(data))},
                **more,
            }
        }

    def encode_line(self, previous: bytes, body: bytes, place: str) -> dict[str, Any]:
        """A history line on its row: the previous digest and the compressed body (each write of the
        row is charged for its size)."""
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=LINE_WORDS)
        data = previous + packer.compress(body) + packer.flush()
        return {"B": data} if len(data) <= LARGEST else self._to_blob(data, place)

    def decode_line(self, attribute: dict[str, Any]) -> tuple[bytes, bytes]:
        """The previous digest and the body of a line. Raises ValueError if the attribute holds no
        line."""
        data = attribute["B"] if "B" in attribute else self.text(attribute)
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=LINE_WORDS)
        try:
            body = unpacker.decompress(data[DIGEST:])
        except zlib.error as error:
            raise ValueError(
                f"the attribute 'trail' holds a line that cannot be unpacked: {error}"
            ) from error
        if not unpacker.eof:
            raise ValueError(
                "the attribute 'trail' holds a line that cannot be unpacked: it is truncated"
            )
        return data[:DIGEST], body

    def decode(self, attribute: dict[str, Any]) -> Any:
        """The value of an attribute. Text is read as JSON if it is JSON; other programs may have
        written any type."""
        if "S" in attribute:
            return _json_or_text(attribute["S"])
        if is_blob(attribute):
            return _parsed(self.text(attribute))
        return plain(attribute)

    def text(self, attribute: dict[str, Any]) -> bytes:
        """The bytes of an attribute made by `encode_text`."""
        if "S" in attribute:
            return bytes(attribute["S"].encode())
        reference = attribute["M"]
        name = reference["blob"]["S"]
        try:
            data = b"".join(self._blobs.read(name))
        except FileNotFoundError:
            raise  # a fault of this row; any other error concerns all of them
        except OSError as error:
            raise unusable(error) from error
        if sha256(data).hexdigest() != reference["sha256"]["S"]:
            raise LedgerDamaged(
                f"the blob {name!r} is damaged: its digest differs from the one in its row; restore it from a backup"
            )
        return data

    def remove(self, image: dict[str, dict[str, Any]], *places: str) -> None:
        """Remove a row's blobs, whose names begin with these places; the row itself is already
        gone. Another program may have put a reference to a blob of another row there. Never raises:
        a blob that stays only takes up space."""
        for name in _blobs_of(image):
            if name.rpartition("/")[0] in places:
                try:
                    self._blobs.remove(name)
                except (OSError, ValueError) as error:
                    log.error("cannot remove the blob %s, whose row is gone: %s", name, error)


def unusable(error: OSError, effect: str = "") -> LedgerError:
    """The blob store has a problem, which concerns all rows: it ends by itself, unless a permission
    is missing."""
    kind = LedgerReadOnly if isinstance(error, PermissionError) else LedgerBusy
    return kind(f"{effect or 'the blob store cannot be used'}: {error}")


def is_blob(attribute: dict[str, Any]) -> bool:
    """Whether an attribute refers to a blob. A map of another program may have a field of that name
    too."""
    fields: dict[str, Any] = attribute.get("M", {})
    return fields.keys() >= {"blob", "sha256", "size"}


def has_blobs(image: dict[str, dict[str, Any]]) -> bool:
    """Whether a row has values stored in blobs."""
    return any(_blobs_of(image))


def _blobs_of(image: dict[str, dict[str, Any]]) -> Iterator[str]:
    for attribute in (*image.values(), *image.get("trail", {}).get("L", ())):
        if is_blob(attribute):
            yield attribute["M"]["blob"]["S"]


def plain(attribute: dict[str, Any]) -> Any:
    """A typed value, with nested ones, as plain JSON values."""
    ((kind, value),) = attribute.items()
    if kind == "N":
        return _decode(value.encode())
    if kind == "M":
        return {name: plain(inner) for name, inner in value.items()}
    if kind == "L":
        return [plain(inner) for inner in value]
    if kind == "NULL":
        return None
    if kind == "NS":
        return sorted(_decode(number.encode()) for number in value)
    if kind in ("SS", "S", "BOOL"):
        return sorted(value) if kind == "SS" else value
    return repr(value)


def _json_or_text(text: str) -> Any:
    data = text.encode()
    try:
        value = _parsed(data)
    except msgspec.DecodeError:
        return text
    # Versions of Python differ in how deep they read.
    check_depth(data)
    return value


def _parsed(data: bytes) -> Any:
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("a value of it is nested too deeply") from None
