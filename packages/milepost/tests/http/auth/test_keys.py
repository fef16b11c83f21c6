"""Keys: scopes, expiry and rates; only their digest is stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.http.guarded_server import ITEMS, READ, SIGNED, GuardedServer, guarded_server
from tests.http.servers_on_ledgers import new_aws_ledger

import milepost as mp
from milepost.core.admission.rates import CallRate
from milepost.core.errors import UsageError
from milepost.engine.act_log import all_acts
from milepost.engine.auth import (
    all_keys,
    any_keys,
    key_view,
    last_uses,
    make_key,
    match,
    note_use,
    revoke_key,
)
from milepost.http.auth.rates import Rates
from milepost.http.protocol.endpoint import Caller
from milepost.ports.documents import KEY_USE
from milepost_testing.clock import VirtualClock


def test_a_key_opens_what_its_scopes_say_and_nothing_else(at: GuardedServer) -> None:
    reader, loader, admin = (
        at.key("read", name="reader"),
        at.key("submit"),
        at.key("admin", name="admin"),
    )
    assert (
        at.call("GET", READ, key=reader).status,
        at.call("POST", ITEMS, {"id": "b"}, key=reader).status,
    ) == (200, 403)
    assert (
        at.call("GET", READ, key=loader).status,
        at.call("POST", ITEMS, {"id": "b"}, key=loader).status,
    ) == (403, 201)
    assert (
        at.call("GET", READ, key=admin).status,
        at.call("POST", ITEMS, {"id": "c"}, key=admin).status,
    ) == (200, 201)
    refused = at.call("POST", ITEMS, {"id": "d"}, key=reader)
    assert (refused.body["code"], refused.body["expected"]) == (
        "not-allowed",
        "a key with the scope 'submit'",
    )


def test_once_there_is_a_key_nobody_is_let_in_without_one(at: GuardedServer) -> None:
    assert at.call("GET", READ).status == 200
    at.key("read")
    # At once: not even the time has moved for which keys are remembered.
    answer = at.call("GET", READ)
    assert (answer.status, answer.body["code"], answer.headers["www-authenticate"]) == (
        401,
        "no-key",
        "Bearer",
    )
    # Nor is anybody let in again when the last key is gone.
    at.revoke()
    at.ticks.now += 5
    assert at.call("GET", READ).status == 401
    assert any_keys(at.ctx)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key[:-1] + ("A" if key[-1] != "A" else "B"),
        lambda key: key + "A",
        lambda key: key.replace("mp_", "xx_"),
        lambda key: "_".join(("mp", "0" * 12, key.split("_", 2)[2])),
        lambda key: "mp_" + key.split("_")[1],
        lambda key: "mp__",
        lambda key: "ü",
    ],
)
def test_a_key_that_is_not_quite_right_is_wrong(spoil: Callable[[str], str]) -> None:
    with mp.open("memory:") as milepost:
        key, text = make_key(milepost.context, "loader", ["read"], **SIGNED)
    assert match({key.id: key}, text, key.at) == key
    assert match({key.id: key}, spoil(text), key.at) is None


def test_a_header_that_holds_no_key_is_answered_401(at: GuardedServer) -> None:
    at.key("read")
    for header in ("Basic bXA6eA==", "Bearer", "mp_x_y", "Bearer mp_x_y"):
        answer = at.call("GET", READ, headers={"Authorization": header})
        assert (answer.status, answer.body["field"]) == (401, "Authorization")


def test_a_key_is_nowhere_in_the_ledger_but_as_a_digest(url: str, tmp_path: Path) -> None:
    with mp.open(url) as milepost:
        key, text = make_key(milepost.context, "loader", ["read"], **SIGNED)
    secret = text.split("_", 2)[2]
    assert len(secret) == 43
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert key.digest.encode() in kept
    assert secret.encode() not in kept
    assert secret not in str(key_view(key, 0))
    assert key.digest not in str(key_view(key, 0))


def test_a_key_made_by_another_process_opens_at_once(at: GuardedServer, url: str) -> None:
    at.key("read", name="first")
    assert at.call("GET", READ).status in (200, 401)
    with mp.open(url) as other:
        text = make_key(other.context, "second", ["read"], **SIGNED)[1]
    assert at.call("GET", READ, key=text).status == 200


def test_a_revoked_key_opens_nothing_within_five_seconds_in_every_process(
    at: GuardedServer, url: str, clock: VirtualClock
) -> None:
    key = at.key("read")
    with guarded_server(url, clock=clock) as other:
        assert (at.call("GET", READ, key=key).status, other.call("GET", READ, key=key).status) == (
            200,
            200,
        )
        at.revoke()
        at.ticks.now += 5
        other.ticks.now += 5
        assert (at.call("GET", READ, key=key).status, other.call("GET", READ, key=key).status) == (
            401,
            401,
        )


def test_a_key_holds_until_it_expires(at: GuardedServer, clock: VirtualClock) -> None:
    key = at.key("read", lasts_ms=90_000)
    clock.advance("89s")
    assert at.call("GET", READ, key=key).status == 200
    clock.advance("1s")
    assert at.call("GET", READ, key=key).status == 401
    at.key("read")  # its name is free again


def test_last_use_is_written_at_most_every_ten_minutes(url: str) -> None:
    clock = VirtualClock()

    def use(key: str) -> tuple[int, int]:
        with guarded_server(url, clock=clock) as at:
            for _ in range(3):
                at.call("GET", READ, key=key)
        with mp.open(url) as milepost:
            return milepost.context.ledger.read(KEY_USE)["loader"].version, last_uses(
                milepost.context
            )[all_keys(milepost.context)[0].id]

    with mp.open(url, clock=clock) as milepost:
        key = make_key(milepost.context, "loader", ["read"], **SIGNED)[1]
    first = clock.now()
    assert use(key) == (1, first)
    clock.advance("9m")
    assert use(key) == (1, first)
    clock.advance("1m")
    assert use(key) == (2, clock.now())


def test_two_processes_that_note_the_same_use_write_it_once() -> None:
    with mp.open("memory:") as milepost:
        key, _ = make_key(milepost.context, "loader", ["read"], **SIGNED)
        note_use(milepost.context, key, key.at)
        note_use(milepost.context, key, key.at + 1)
        assert last_uses(milepost.context) == {key.id: key.at}


def test_a_new_key_of_the_same_name_was_not_used_by_the_old_one() -> None:
    with mp.open("memory:") as milepost:
        before, _ = make_key(milepost.context, "loader", ["read"], **SIGNED)
        note_use(milepost.context, before, before.at)
        revoke_key(milepost.context, "loader", **SIGNED)
        after, _ = make_key(milepost.context, "loader", ["read"], **SIGNED)
        assert after.id not in last_uses(milepost.context)
        note_use(milepost.context, after, before.at)
        assert last_uses(milepost.context) == {after.id: before.at}


def test_a_key_of_one_route_sees_nothing_of_another(at: GuardedServer) -> None:
    key = at.key("read", "submit", routes=["letters"])
    hidden = at.call("GET", READ, key=key)
    assert (hidden.status, hidden.body["code"], hidden.body["expected"]) == (
        404,
        "unknown-route",
        "letters",
    )
    assert at.call("POST", ITEMS, {"id": "x"}, key=key).status == 404
    assert at.call("POST", "/api/v1/routes/letters/items", {"id": "x"}, key=key).status == 201
    assert list(
        filter(Caller("x", frozenset(), frozenset({"letters"})).sees, ["parcels", "letters"])
    ) == ["letters"]
    assert list(filter(Caller("x", frozenset()).sees, ["parcels", "letters"])) == [
        "parcels",
        "letters",
    ]


def test_a_key_that_calls_too_often_is_told_when_to_come_again(at: GuardedServer) -> None:
    key, other = at.key("read", rate=0.5, burst=2), at.key("read", name="other")
    assert [at.call("GET", READ, key=key).status for _ in range(3)] == [200, 200, 429]
    refused = at.call("GET", READ, key=key)
    assert (refused.body["code"], refused.headers["retry-after"]) == ("too-many", "2")
    assert at.call("GET", READ, key=other).status == 200
    at.ticks.now += 2
    assert [at.call("GET", READ, key=key).status for _ in range(2)] == [200, 429]


def test_wrong_keys_are_slowed_down_but_a_good_one_is_not(at: GuardedServer) -> None:
    key = at.key("read")
    wrong = f"mp_{'0' * 12}_{'x' * 43}"
    assert [at.call("GET", READ, key=wrong).status for _ in range(11)] == [401] * 10 + [429]
    refused = at.call("GET", READ, key=wrong)
    assert 1 <= int(refused.headers["retry-after"]) <= 6
    assert at.call("GET", READ, key=key).status == 200
    at.ticks.now += 6
    assert [at.call("GET", READ, key=wrong).status for _ in range(2)] == [401, 429]


def test_a_bucket_fills_up_again_and_never_beyond_its_burst() -> None:
    rates, rate = Rates(), CallRate(2, 3)
    assert [rates.take("a", rate, 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.take("b", rate, 0.0) == 0
    assert rates.wait("a", rate, 0.25) == 0.25
    assert [rates.take("a", rate, 100.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_of_too_many_names_the_one_unused_for_longest_is_forgotten() -> None:
    rates, rate = Rates(most=2), CallRate(1, 1)
    for name in ("a", "b", "a", "c"):
        rates.take(name, rate, 0.0)
    assert (rates.wait("a", rate, 0.0), rates.wait("b", rate, 0.0), rates.wait("c", rate, 0.0)) == (
        1,
        0,
        1,
    )


@pytest.mark.parametrize(
    ("name", "scopes", "routes", "message"),
    [
        ("loader", ["read"], None, "key 'loader' already exists"),
        ("", ["read"], None, "invalid key name ''"),
        ("a\nb", ["read"], None, "invalid key name"),
        ("x", [], None, "a key needs a scope; scopes are read, submit"),
        ("x", ["write"], None, "'write' is not a scope"),
        ("x", ["read"], ["nope"], "there is no route 'nope'"),
    ],
)
def test_a_key_that_cannot_be_is_not_made(
    name: str, scopes: list[str], routes: list[str] | None, message: str
) -> None:
    with mp.open("memory:") as milepost:
        make_key(milepost.context, "loader", ["read"], **SIGNED)
        with pytest.raises(UsageError, match=re.escape(message)):
            make_key(milepost.context, name, scopes, routes=routes, **SIGNED)
        assert len(all_keys(milepost.context)) == 1


def test_making_and_revoking_keys_are_acts_on_record() -> None:
    with mp.open("memory:") as milepost:
        ctx = milepost.context
        make_key(ctx, "loader", ["read"], **SIGNED)
        revoke_key(ctx, "loader", **SIGNED)
        revoke_key(ctx, "loader", **SIGNED)  # said again it changes nothing
        acts = {act.verb: act for act in all_acts(ctx)}
        assert len(all_acts(ctx)) == 2
        assert (acts["new-key"].by, acts["new-key"].reason) == ("ops", "a test")
        assert acts["new-key"].filter["scopes"] == ["read"]
        assert acts["revoke-key"].filter["scope"] == "key loader"
        with pytest.raises(UsageError, match="a name and a reason"):
            revoke_key(ctx, "loader", by="", reason="")
        with pytest.raises(UsageError, match="there is no key 'nope'"):
            revoke_key(ctx, "nope", **SIGNED)


def test_keys_hold_on_aws_too() -> None:
    with new_aws_ledger() as address, guarded_server(address) as at:
        key = at.key("submit")
        assert at.call("POST", ITEMS, {"id": "a"}, key=key).status == 201
        assert at.call("GET", READ, key=key).status == 403
        at.revoke()
        at.ticks.now += 5
        assert at.call("POST", ITEMS, {"id": "a"}, key=key).status == 401
