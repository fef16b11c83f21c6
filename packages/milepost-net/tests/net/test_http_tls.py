"""TLS of the HTTP client: certificates are verified, by name and by authority; a client's own
certificate is shown where it is asked for."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.net.partner import OPEN, Line, Partner, always

import milepost_net as net
from milepost_net import SendState, Tls

SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority of a test's own, and the files that it makes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._made(self._name, self._key.public_key(), ca=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _made(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        ca: bool = False,
        hosts: tuple[str, ...] = (),
        days: int = 30,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        names: list[x509.GeneralName] = []
        for host in hosts:
            names.append(
                x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
            )
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            # From Python 3.13 on, these are required.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if ca:
            builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def certificate(self, *hosts: str, days: int = 30) -> tuple[str, str]:
        """The files of a certificate for these hosts, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._made(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]),
            key.public_key(),
            hosts=hosts,
            days=days,
        )
        base = self._folder / f"{hosts[0]}-{made.serial_number}"
        certificate_file, key_file = base.with_suffix(".crt"), base.with_suffix(".key")
        certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(certificate_file), str(key_file)

    def context(self, *hosts: str, days: int = 30) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate(*hosts, days=days))
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def client(authority: Authority) -> Iterator[net.Client]:
    async def resolver(host: str) -> list[str]:
        return ["127.0.0.1"]

    with net.Client(
        allow_cidrs=OPEN, tls=Tls(ca_file=str(authority.file)), resolver=resolver
    ) as client:
        yield client


def refused(client: net.Client, url: str, **options: Tls) -> net.NetError:
    with pytest.raises(net.ConnectFailed) as caught:
        client.request("GET", url, **options)  # type: ignore[arg-type]
    assert caught.value.sent is SendState.NOT_SENT
    return caught.value


def test_the_name_of_the_url_is_the_name_in_sni_host_and_certificate(
    client: net.Client, authority: Authority
) -> None:
    names: list[str | None] = []
    context = authority.context("partner.example")
    context.sni_callback = lambda sock, name, context: names.append(name)  # type: ignore[assignment,func-returns-value]
    with Partner(always(), context=context) as partner:
        for _ in range(3):
            assert client.request("GET", f"https://Partner.Example.:{partner.port}/").status == 200
        assert (names, partner.connections) == (["partner.example"], 1)
        assert partner.requests[0].headers["host"] == f"partner.example:{partner.port}"


def test_an_address_may_have_a_certificate_too(client: net.Client, authority: Authority) -> None:
    with Partner(always(), context=authority.context("127.0.0.1")) as partner:
        assert client.request("GET", partner.url).status == 200


@pytest.mark.parametrize(
    ("hosts", "days", "said"),
    [
        (("other.example",), 30, "not valid for 'partner.example'"),
        (("partner.example",), -1, "expired"),
        (("127.0.0.1",), 30, "not valid"),
    ],
)
def test_a_certificate_for_another_name_or_another_time_is_refused(
    client: net.Client, authority: Authority, hosts: tuple[str, ...], days: int, said: str
) -> None:
    with Partner(always(), context=authority.context(*hosts, days=days)) as partner:
        error = refused(client, f"https://partner.example:{partner.port}/")
        assert error.kind == "certificate-refused"
        assert said in str(error)
        assert partner.requests == []


def test_an_authority_that_is_not_trusted_is_refused(
    client: net.Client, tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path, "theirs")
    with Partner(always(), context=other.context("partner.example")) as partner:
        url = f"https://partner.example:{partner.port}/"
        assert refused(client, url).kind == "certificate-refused"
        assert refused(client, url, tls=Tls()).kind == "certificate-refused", (
            "the system's authorities do not know it either"
        )
        assert client.request("GET", url, tls=Tls(ca_file=str(other.file))).status == 200
        assert partner.requests[0].connection == partner.connections


def test_connections_with_other_certificates_are_not_shared(
    client: net.Client, authority: Authority
) -> None:
    certificate, key = authority.certificate("milepost")
    context = authority.context("partner.example")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(authority.file)
    with Partner(always(), context=context) as partner:
        url = f"https://partner.example:{partner.port}/"
        client.request("GET", url)
        client.request("GET", url, tls=Tls(str(authority.file), certificate, key))
        client.request("GET", url)
        assert partner.connections == 2


def test_a_partner_that_wants_a_certificate_gets_it(
    client: net.Client, authority: Authority
) -> None:
    certificate, key = authority.certificate("milepost")
    context = authority.context("partner.example")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    with Partner(always(), context=context) as partner:
        url = f"https://partner.example:{partner.port}/"
        with pytest.raises(net.NetError):
            client.request("GET", url)
        assert (
            client.request("GET", url, tls=Tls(str(authority.file), certificate, key)).status == 200
        )


def test_a_certificate_that_is_replaced_is_shown_on_the_next_connection(
    client: net.Client, authority: Authority, tmp_path: Path
) -> None:
    shown: list[object] = []
    context = authority.context("partner.example")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)

    def script(line: Line) -> None:
        shown.append(cast("ssl.SSLSocket", line.sock).getpeercert(binary_form=True))
        line.read()
        line.answer(200, b"", "Connection: close")

    tls = Tls(str(authority.file), str(tmp_path / "own.crt"), str(tmp_path / "own.key"))
    with Partner(script, context=context) as partner:
        for number, name in enumerate(("milepost", "milepost", "renewed")):
            for source, place in zip(
                authority.certificate(name), ("own.crt", "own.key"), strict=True
            ):
                if number != 1:
                    (tmp_path / place).write_bytes(Path(source).read_bytes())
                    os.utime(tmp_path / place, (number, number))
            assert (
                client.request("GET", f"https://partner.example:{partner.port}/", tls=tls).status
                == 200
            )
    assert shown[0] == shown[1] != shown[2]


def test_while_certificate_and_key_do_not_match_those_of_before_are_used(
    client: net.Client, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = authority.context("partner.example")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    own, key = (
        Path(file).rename(tmp_path / Path(file).name) for file in authority.certificate("own")
    )
    renewed, _ = authority.certificate("renewed")
    tls = Tls(str(authority.file), str(own), str(key))
    with Partner(always(200, b"", "Connection: close"), context=context) as partner:
        url = f"https://partner.example:{partner.port}/"
        assert client.request("GET", url, tls=tls).status == 200
        assert not caplog.messages
        Path(renewed).replace(own)
        assert client.request("GET", url, tls=tls).status == 200
        own.unlink()
        assert client.request("GET", url, tls=tls).status == 200
        assert len(caplog.messages) == 2
        with pytest.raises(net.NetUsageError, match="No such file"):
            tls.check()


def test_a_partner_that_does_not_speak_tls_is_named_as_such(client: net.Client) -> None:
    with Partner(
        lambda line: line.sock.recv(100) and line.send(b"HTTP/1.1 400 No\r\n\r\n") and None
    ) as partner:
        error = refused(client, f"https://partner.example:{partner.port}/")
        assert error.kind == "tls-failed"


def test_a_redirect_from_https_to_http_is_refused(client: net.Client, authority: Authority) -> None:
    with Partner(always()) as plain:
        script = always(302, b"", f"Location: http://partner.example:{plain.port}/")
        with Partner(script, context=authority.context("partner.example")) as partner:
            with pytest.raises(net.RedirectRefused, match="from https to http"):
                client.request(
                    "GET",
                    f"https://partner.example:{partner.port}/",
                    redirects=net.Redirects(["partner.example"]),
                )
        assert plain.requests == []


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    certificate, key = authority.certificate("milepost")
    other_key = authority.certificate("other")[1]
    encrypted = tmp_path / "encrypted.key"
    private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    encrypted.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pw"),
        )
    )
    with net.Client(allow_cidrs=OPEN) as client:
        for tls, said in (
            (Tls(ca_file=str(tmp_path / "missing")), "ca_file='.*missing'.*No such file"),
            (Tls(ca_file=str(nonsense)), "ca_file='.*nonsense.pem'"),
            (Tls(certificate_file=certificate, key_file=other_key), "certificate_file='.*milepost"),
            (Tls(certificate_file=certificate, key_file=str(encrypted)), "the key is encrypted"),
        ):
            with pytest.raises(net.NetUsageError, match=said):
                client.request("GET", "https://127.0.0.1:1/", tls=tls)
    with pytest.raises(net.NetUsageError, match="certificate_file"):
        Tls(key_file=key)


def test_a_partner_that_wants_a_client_certificate_and_gets_none_is_a_failure_of_tls(
    client: net.Client, authority: Authority
) -> None:
    context = authority.context("partner.example")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version = context.maximum_version = version
        with (
            Partner(always(), context=context) as partner,
            pytest.raises(
                net.NetError, match=r"TLS connection \(.*(certificate|handshake)"
            ) as caught,
        ):
            client.request("POST", f"https://partner.example:{partner.port}/", body=b"x")
        assert caught.value.kind == "tls-failed"


def test_a_partner_that_closes_during_the_handshake_is_a_failure_of_tls(client: net.Client) -> None:
    def script(line: Line) -> None:
        line.sock.recv(65_536)
        line.reset()

    with Partner(script) as partner:
        error = refused(client, f"https://partner.example:{partner.port}/")
    assert (error.kind, "TLS" in str(error)) == ("tls-failed", True)
