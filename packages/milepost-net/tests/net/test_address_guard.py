"""The address guard: whatever is not an ordinary public address is refused, in any notation, unless
its CIDR is allowed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost_net import AddressGuard, InvalidRequest, NetUsageError, parse_url
from milepost_net.guard import (
    CARRIERS,
    METADATA,
    REFUSED_V4,
    REFUSED_V6,
    carried_v4,
    special,
    vetted,
)

CLOSED = AddressGuard()


def within(network: IPv4Network | IPv6Network) -> st.SearchStrategy[IPv4Address | IPv6Address]:
    first, last = int(network.network_address), int(network.broadcast_address)
    return st.one_of(st.just(first), st.just(last), st.integers(first, last)).map(
        type(network.network_address)
    )


refused_v4 = st.sampled_from([network for network, _ in REFUSED_V4]).flatmap(within)
refused_v6 = st.sampled_from([network for network, _ in REFUSED_V6]).flatmap(within)
any_v4 = st.integers(0, 2**32 - 1).map(IPv4Address)
any_v6 = st.one_of(st.integers(0, 2**128 - 1).map(IPv6Address), refused_v6)
any_address = st.one_of(any_v4, refused_v4, any_v6)


def networks(version: int) -> st.SearchStrategy[IPv4Network | IPv6Network]:
    bits, kind = (32, IPv4Network) if version == 4 else (128, IPv6Network)
    return st.tuples(st.integers(0, 2**bits - 1), st.integers(0, bits)).map(
        lambda pair: kind(pair, strict=False)
    )


any_network = st.one_of(networks(4), networks(6))


def notations(address: IPv4Address) -> list[str]:
    """The ways in which C libraries let an IPv4 address be written, the usual one left out."""
    value = int(address)
    a, b, c, d = address.packed
    return [
        str(value),
        hex(value),
        oct(value).replace("0o", "0"),
        f"{a}.{value & 0xFFFFFF}",
        f"{a}.{b}.{value & 0xFFFF}",
        f"0x{a:x}.{b}.{c}.{d}",
        f"{a}.{b}.{c}.0x{d:X}",
        f"0{a:o}.{b}.{c}.{d}",
        f"{a}.{b}.{c}.{d:04o}",
        f"{address}.",
        f"{a:03d}.{b:03d}.{c:03d}.{d:03d}." if a < 100 else f"0{a}.{b}.{c}.{d}",
    ]


# What is refused ----------------------------------------------------------------------------------
@given(st.one_of(refused_v4, refused_v6))
def test_an_address_in_a_special_range_is_refused(address: IPv4Address | IPv6Address) -> None:
    assert CLOSED.refusal(address)


@given(any_address)
def test_what_the_standard_library_does_not_call_global_is_refused(
    address: IPv4Address | IPv6Address,
) -> None:
    """A second opinion, from code that shares nothing with ours. We refuse more than it does
    (NAT64, 6to4), never less."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert CLOSED.refusal(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
                                     "2606:4700:4700::1111", "2a00:1450:4001:82b::200e", "2001:4860:4860::8888"])  # fmt: skip
def test_ordinary_public_addresses_pass(address: str) -> None:
    assert CLOSED.refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", [str(address) for address in METADATA])
def test_metadata_is_named_as_what_it_is(address: str) -> None:
    assert CLOSED.refusal(ip_address(address)) == "cloud metadata"


@given(st.one_of(refused_v4, any_v4), st.sampled_from(CARRIERS))
def test_an_ipv4_address_within_an_ipv6_address_is_refused(
    address: IPv4Address, carrier: tuple[IPv6Network, str, int]
) -> None:
    network, reason, shift = carrier
    value = int(address) ^ (0xFFFFFFFF if reason == "Teredo" else 0)
    within = IPv6Address(int(network.network_address) | value << shift)
    assert CLOSED.refusal(within)
    if int(within) > 1:
        assert carried_v4(within) == address


@pytest.mark.parametrize(
    "host",
    [
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::a00:1]",
        "[2002:7f00:1::]",
        "[::ffff:a9fe:a9fe]",
    ],
)
def test_the_known_disguises_of_loopback_and_metadata_are_refused(host: str) -> None:
    address = parse_url(f"http://{host}/").address
    assert address is not None
    assert AddressGuard.allowing(["127.0.0.0/8", "10.0.0.0/8"]).refusal(address)


# What is allowed ----------------------------------------------------------------------------------
@given(any_network, any_address)
def test_an_allowed_network_opens_itself_and_nothing_else(
    network: IPv4Network | IPv6Network, address: IPv4Address | IPv6Address
) -> None:
    guard = AddressGuard((network,))
    if special(address) is None:
        assert guard.refusal(address) is None
    elif address not in network:
        assert guard.refusal(address) == special(address)
    elif carried_v4(address) is None:
        assert guard.refusal(address) is None


@given(any_network.flatmap(lambda network: st.tuples(st.just(network), within(network))))
def test_an_address_in_an_allowed_network_passes(
    pair: tuple[IPv4Network | IPv6Network, IPv4Address | IPv6Address],
) -> None:
    network, address = pair
    if carried_v4(address) is None:
        assert AddressGuard.allowing([str(network)]).refusal(address) is None


@given(refused_v4)
def test_nat64_that_is_allowed_still_judges_the_address_within(address: IPv4Address) -> None:
    """On a network with IPv6 alone every name has a NAT64 address: allowing these must not open the
    private ones among them."""
    translated = IPv6Address(int(IPv6Address("64:ff9b::")) | int(address))
    assert AddressGuard.allowing(["64:ff9b::/96"]).refusal(translated) == special(address)
    assert AddressGuard.allowing(["64:ff9b::/96", f"{address}/32"]).refusal(translated) is None
    assert AddressGuard.allowing(["64:ff9b::/96"]).refusal(IPv6Address("64:ff9b::808:808")) is None


def test_of_several_addresses_those_that_may_be_used_are_left() -> None:
    allowed, reasons = vetted(
        CLOSED, ["10.0.0.1", "8.8.8.8", "10.0.0.2", "fe80::1%eth0", "nonsense", "2606:4700::1"]
    )
    assert [str(address) for address in allowed] == ["8.8.8.8", "2606:4700::1"]
    assert reasons == ["private", "an address with a zone", "not an address"]


@pytest.mark.parametrize(
    ("cidrs", "said"),
    [
        ("127.0.0.0/8", r"allow_cidrs is '127\.0\.0\.0/8'; it must be a list"),
        (
            ["10.0.0.0/8", "10.0.0.1/8"],
            r"allow_cidrs\[1\] is '10\.0\.0\.1/8', which has bits set .* write '10\.0\.0\.0/8'",
        ),
        (["127.0.0.1"], r"allow_cidrs\[0\] is '127\.0\.0\.1'; give a network"),
        (["localhost/8"], r"allow_cidrs\[0\] is 'localhost/8'"),
        (["10.0.0.0/33"], r"allow_cidrs\[0\]"),
        (["::1/129"], r"allow_cidrs\[0\]"),
        ([7], r"allow_cidrs\[0\] is 7"),
        ([""], r"allow_cidrs\[0\] is ''"),
    ],
)
def test_a_cidr_that_cannot_be_is_named_with_its_field(cidrs: list[str], said: str) -> None:
    with pytest.raises(NetUsageError, match=said):
        AddressGuard.allowing(cidrs)


@given(any_network)
def test_every_network_can_be_written_in_the_field(network: IPv4Network | IPv6Network) -> None:
    assert AddressGuard.allowing([str(network)]).allowed == (ip_network(str(network)),)


# Notations ----------------------------------------------------------------------------------------
@given(
    any_v4.flatmap(lambda address: st.tuples(st.just(address), st.sampled_from(notations(address))))
)
def test_an_unusual_notation_of_an_address_is_refused_whatever_it_means(
    pair: tuple[IPv4Address, str],
) -> None:
    address, host = pair
    if host != str(address):
        with pytest.raises(InvalidRequest):
            parse_url(f"http://{host}/")


@given(any_v4)
def test_the_usual_notation_is_that_address(address: IPv4Address) -> None:
    url = parse_url(f"http://{address}:8080/a?b")
    assert (url.address, url.host, url.port, url.target) == (address, str(address), 8080, "/a?b")


@given(any_v6)
def test_an_ipv6_address_in_any_notation_is_that_address(address: IPv6Address) -> None:
    for text in (address.compressed, address.exploded, address.exploded.upper()):
        assert parse_url(f"https://[{text}]/").address == address


@pytest.mark.parametrize(
    "url",
    [
        "", "office", "//office.example", "ftp://office.example", "file:///etc/passwd", "javascript:alert(1)", "http://", "http:///a",
        "http://me@office.example", "http://me:pw@office.example", "http://public.example@127.0.0.1/", "http://127.0.0.1\\@public.example/",
        "http://office.example:0", "http://office.example:99999", "http://office.example:", "http://office.example:80x", "http://a b/",
        "http://office.example/a b", "http://office.example/\r\nX: y", "http://office.example/\u00e9", "http://\uff11\uff12\uff17.0.0.1/",
        "http://b\u00fccher.example/", "http://\u2460.example", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1", "http://::1/",
        "http://[v1.a]/", "http://%31%32%37.0.0.1/", "http://a..b/", "http://.a/", "http://-a.example/", "http://127.0.0.1./", "http://0/",
        "http://0x7f000001/", "http://0x7f.1", "http://017700000001", "http://127.1", "http://1.2.3.4.5", "http://999.1.1.1", "http://1.1.1.256",
        "http://a.0x", "http://office.example\x00/", f"http://office.example/{'a' * 20_000}", f"http://{'a' * 64}.example/",
    ],
)  # fmt: skip
def test_what_is_no_plain_url_is_refused_without_its_path(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_url(url)
    assert "pw" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("url", "host", "header", "target"),
    [
        ("HTTPS://Office.Example", "office.example", "office.example", "/"),
        ("https://office.example.:443/a#b", "office.example", "office.example", "/a"),
        ("http://office.example:443?q=1", "office.example", "office.example:443", "/?q=1"),
        (
            "http://xn--bcher-kva.example/%C3%A9",
            "xn--bcher-kva.example",
            "xn--bcher-kva.example",
            "/%C3%A9",
        ),
        ("http://my_host/", "my_host", "my_host", "/"),
        ("http://[::1]:81/", "::1", "[::1]:81", "/"),
    ],
)
def test_a_url_has_one_host_in_one_spelling(url: str, host: str, header: str, target: str) -> None:
    found = parse_url(url)
    assert (found.host, found.host_header, found.target) == (host, header, target)
