"""Keys and signatures."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from milepost.core.errors import ConfigMistake, MilepostError, UsageError
from milepost.evidence.signing import (
    Signer,
    fingerprint,
    is_signed,
    make_key,
    message,
    public_text,
    read_public,
    read_signer,
)

DIGEST = "ab" * 32


def test_a_key_is_its_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    made = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    body = path.read_bytes()
    with pytest.raises(MilepostError, match="not overwritten"):
        make_key(path)
    assert path.read_bytes() == body
    assert read_signer(path).public == made.public
    with pytest.raises(MilepostError, match="cannot write"):
        make_key(tmp_path / "no" / "key.pem")


def test_a_signature_holds_for_its_content_its_kind_and_its_key_alone(
    signer: Signer, tmp_path: Path
) -> None:
    signature = signer.sign("head", DIGEST)
    assert is_signed(signer.public, signature, "head", DIGEST)
    assert not is_signed(signer.public, signature, "head", "cd" * 32)
    assert not is_signed(signer.public, signature, "evidence-file", DIGEST)
    assert not is_signed(make_key(tmp_path / "other.pem").public, signature, "head", DIGEST)
    for wrong in (None, "", "!", signature[:-4], signature + "\n", 7):
        assert not is_signed(signer.public, wrong, "head", DIGEST)


def test_a_public_key_is_read_from_text_pem_and_files(signer: Signer, tmp_path: Path) -> None:
    text = public_text(signer.public)
    key = ed25519.Ed25519PublicKey.from_public_bytes(signer.public)
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()
    for name, body in (("text", text + "\n"), ("pem", pem)):
        (tmp_path / name).write_text(body)
        assert read_public(str(tmp_path / name)) == signer.public
        assert read_public(body) == signer.public
    assert fingerprint(signer.public).startswith("sha256:")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for wrong in (
        "ed25519:abc",
        "ed25519:!",
        str(tmp_path / "none"),
        str(tmp_path / "binary"),
        "-----BEGIN PUBLIC KEY-----\nx",
    ):
        with pytest.raises(UsageError, match="--public-key"):
            read_public(wrong)
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    with pytest.raises(UsageError, match="another kind"):
        read_public(
            other.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ).decode()
        )


def test_a_file_that_holds_no_key_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("no key")
    other = ec.generate_private_key(ec.SECP256R1())
    pem = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "other").write_bytes(pem)
    (tmp_path / "locked").write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    for name in ("none", "junk", "other", "locked"):
        with pytest.raises(ConfigMistake, match="milepost signing-key"):
            read_signer(tmp_path / name)


def test_somebody_without_milepost_can_check_a_signature(signer: Signer, tmp_path: Path) -> None:
    """With openssl, as the page on evidence shows."""
    key = ed25519.Ed25519PublicKey.from_public_bytes(signer.public)
    (tmp_path / "public.pem").write_bytes(
        key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    (tmp_path / "signature").write_bytes(base64.b64decode(signer.sign("evidence-record", DIGEST)))
    (tmp_path / "message").write_bytes(message("evidence-record", DIGEST))
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "public.pem",
        "-rawin",
        "-in",
        "message",
        "-sigfile",
        "signature",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "Verified Successfully" in done.stdout, done
