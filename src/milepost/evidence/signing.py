"""Ed25519 signatures. A signature is over one line of text that names what is signed and its digest."""

from __future__ import annotations

import base64
import binascii
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.core.errors import ConfigMistake, MilepostError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX = "ed25519:"


def message(kind: str, digest: str) -> bytes:
    """What is signed. The kind stands in it, so that a signature of one thing is never one of another."""
    return f"milepost {kind} sha256:{digest}".encode()


class Signer:
    """Signs with one private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    def sign(self, kind: str, digest: str) -> str:
        return base64.b64encode(self._key.sign(message(kind, digest))).decode()


def make_key(path: Path) -> Signer:
    """A new private key in a file that only its owner can read; one that is there is never overwritten."""
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    body = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise MilepostError(f"{path} is there already and was not overwritten; name another file") from None
    except OSError as error:
        raise MilepostError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    return Signer(key)


def read_signer(path: Path) -> Signer:
    """The private key in a file."""
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigMistake(f"the signing key {path} cannot be read: {error.strerror}; 'milepost signing-key {path}' makes one") from None
    except (ValueError, TypeError):
        raise ConfigMistake(
            f"{path} holds no private key (PEM, PKCS8, without a password); 'milepost signing-key FILE' makes one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigMistake(f"{path} holds a key of another kind; Milepost signs with Ed25519; 'milepost signing-key FILE' makes one")
    return Signer(key)


def read_public(given: str) -> bytes:
    """A public key from its text (ed25519:…), or from a file that holds that text or PEM."""
    text = given.strip()
    if not text.startswith((PREFIX, "-----BEGIN")):
        try:
            text = Path(given).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise UsageError(f"--public-key: {given!r} is neither a file that can be read nor a key; a key is {PREFIX}… or PEM") from None
    if text.startswith(PREFIX):
        with suppress(binascii.Error, ValueError):
            raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
            if len(raw) == 32:
                return raw
        raise UsageError(f"--public-key: {text[:60]!r} is no Ed25519 key: {PREFIX} is followed by 32 bytes in base64")
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(text.encode())
    except ValueError:
        raise UsageError(f"--public-key: {given!r} holds no public key; give {PREFIX}… or PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("--public-key: that is a key of another kind; Milepost signs with Ed25519")
    return key.public_bytes_raw()


def public_text(public: bytes) -> str:
    return PREFIX + base64.b64encode(public).decode()


def fingerprint(public: bytes) -> str:
    """A short name of a key, to compare by eye or over the telephone."""
    return f"sha256:{sha256(public).hexdigest()}"


def is_signed(public: bytes, signature: object, kind: str, digest: str) -> bool:
    """Was this signed with the private key that belongs to `public`?"""
    _need()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(signature, str):
        return False
    try:
        raw = base64.b64decode(signature, validate=True)
        if base64.b64encode(raw).decode() != signature:
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(raw, message(kind, digest))
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True


def _need() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigMistake("signatures need the package cryptography: pip install 'milepost[evidence]'") from None
