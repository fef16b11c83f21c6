"""Ed25519 signatures over one line of text with the kind and digest of the signed content."""

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
    """The signed text. It includes the kind, so that a signature of one kind is not valid for
    another."""
    return f"milepost {kind} sha256:{digest}".encode()


class Signer:
    """Signs with one private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    def sign(self, kind: str, digest: str) -> str:
        return base64.b64encode(self._key.sign(message(kind, digest))).decode()


def make_key(path: Path) -> Signer:
    """Create a private key in a file that only its owner can read; an existing file is never
    overwritten."""
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    body = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise MilepostError(
            f"{path} already exists and was not overwritten; name another file"
        ) from None
    except OSError as error:
        raise MilepostError(f"cannot write {path}: {error.strerror}") from None
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
        raise ConfigMistake(
            f"cannot read the signing key {path}: {error.strerror}; 'milepost signing-key {path}' creates one"
        ) from None
    except (ValueError, TypeError):
        raise ConfigMistake(
            f"{path} holds no private key (PEM, PKCS8, without a password); 'milepost signing-key FILE' creates one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigMistake(
            f"{path} holds a key of another kind; Milepost signs with Ed25519; 'milepost signing-key FILE' creates one"
        )
    return Signer(key)


def read_public(given: str) -> bytes:
    """A public key from its text (ed25519:…), or from a file that holds that text or PEM."""
    text = given.strip()
    if not text.startswith((PREFIX, "-----BEGIN")):
        try:
            text = Path(given).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise UsageError(
                f"--public-key: {given!r} is neither a readable file nor a key; a key is {PREFIX}… or PEM"
            ) from None
    if text.startswith(PREFIX):
        with suppress(binascii.Error, ValueError):
            raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
            if len(raw) == 32:
                return raw
        raise UsageError(
            f"--public-key: {text[:60]!r} is not an Ed25519 key: {PREFIX} must be followed by 32 bytes in base64"
        )
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(text.encode())
    except ValueError:
        raise UsageError(
            f"--public-key: {given!r} holds no public key; give {PREFIX}… or PEM"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("--public-key: that is a key of another kind; Milepost signs with Ed25519")
    return key.public_bytes_raw()


def public_text(public: bytes) -> str:
    return PREFIX + base64.b64encode(public).decode()


def fingerprint(public: bytes) -> str:
    """A short name of a key, for comparison by people."""
    return f"sha256:{sha256(public).hexdigest()}"


def is_signed(public: bytes, signature: object, kind: str, digest: str) -> bool:
    """Whether the private key of `public` made this signature."""
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
        raise ConfigMistake(
            "signatures need the package cryptography: pip install '/path/to/milepost/packages/milepost[evidence]'"
        ) from None
