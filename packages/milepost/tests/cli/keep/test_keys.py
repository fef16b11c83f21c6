"""Keys from the command line."""

from __future__ import annotations


def test_a_key_is_shown_once_and_listed_without_its_secret(shell) -> None:
    made = shell.signed(
        "keys", "new", "loader", "--scope", "submit", "--scope", "read", "--expires", "90d"
    )
    key = made.out.strip()
    assert key.startswith("mp_")
    assert "cannot be shown again" in made.err
    listed, shown = shell.ok("keys", "--json"), shell.ok("keys")
    assert [
        (one["name"], one["state"], one["scopes"], one["routes"]) for one in listed.json["keys"]
    ] == [("loader", "good", ["read", "submit"], None)]
    assert listed.json["keys"][0]["made_by"] == "ops"
    assert "read, submit" in shown.out
    assert key.split("_", 2)[2] not in listed.out + shown.out


def test_a_revoked_key_says_so_and_both_acts_are_on_record(shell) -> None:
    made = shell.signed(
        "keys", "new", "loader", "--scope", "read", "--route", "parcels", "--rate", "10/s", "--json"
    ).json
    assert (made["routes"], made["rate"]) == (["parcels"], 10)
    assert shell.signed("keys", "revoke", "loader", "--json").json["state"] == "revoked"
    assert shell.ok("keys", "--json").json["keys"][0]["revoked_why"] == "a test"
    acts = shell.ok("acts", "--json").json["acts"]
    assert {act["verb"] for act in acts} == {"new-key", "revoke-key"}
    assert made["key"].split("_", 2)[2] not in str(acts)
    assert "revoke-key key loader" in shell.ok("acts").out


def test_mistakes_are_said_plainly(shell) -> None:
    assert shell("keys", "new", "loader", "--scope", "read").code == 2
    assert (
        "scopes are read, submit" in shell.signed("keys", "new", "loader", "--scope", "write").err
    )
    assert (
        "no route 'letters'"
        in shell.signed("keys", "new", "loader", "--scope", "read", "--route", "letters").err
    )
    assert (
        "--expires is 'soon'"
        in shell.signed("keys", "new", "loader", "--scope", "read", "--expires", "soon").err
    )
    assert "No API keys" in shell.ok("keys").out
    assert shell.signed("keys", "revoke", "loader").code == 2


def test_a_key_has_attributes_for_applications(shell) -> None:
    made = shell.signed(
        "keys",
        "new",
        "shop",
        "--scope",
        "submit",
        "--attribute",
        "sender=shop",
        "--attribute",
        "tier=a=b",
        "--json",
    ).json
    assert made["attributes"] == {"sender": "shop", "tier": "a=b"}
    shown = shell.ok("keys").out
    assert "attributes" in shown
    assert "sender=shop, tier=a=b" in " ".join(shown.split())
    assert (
        "use NAME=VALUE"
        in shell.signed("keys", "new", "x", "--scope", "read", "--attribute", "sender").err
    )
    assert (
        "given twice"
        in shell.signed(
            "keys", "new", "x", "--scope", "read", "--attribute", "a=1", "--attribute", "a=2"
        ).err
    )
    assert (
        "invalid attribute 'Sender'"
        in shell.signed("keys", "new", "x", "--scope", "read", "--attribute", "Sender=1").err
    )
    assert (
        "has the value ''"
        in shell.signed("keys", "new", "x", "--scope", "read", "--attribute", "sender=").err
    )


def test_the_first_key_says_that_every_call_needs_one_now(shell) -> None:
    first = shell.signed("keys", "new", "shop", "--scope", "submit")
    assert "from now on every call needs a key" in first.err
    assert "keys new NAME --scope admin" in first.err
    assert first.out.strip().startswith("mp_")
    assert "from now on" not in shell.signed("keys", "new", "me", "--scope", "admin").err


def test_the_first_key_may_be_that_of_an_administrator(shell) -> None:
    made = shell.signed("keys", "new", "me", "--scope", "admin").err
    assert "from now on every call needs a key" in made
    assert "--scope admin" not in made


def test_a_new_key_without_a_sender_says_what_it_can_do_in_notifications(shell) -> None:
    (shell.folder / "milepost.toml").write_text('applications = ["notifications"]\n')
    assert (
        "neither submit to nor read notifications"
        in shell.signed("keys", "new", "loader", "--scope", "submit", "--scope", "read").err
    )
    assert (
        "reads everything of notifications"
        in shell.signed("keys", "new", "watcher", "--scope", "read").err
    )
    for options in (("--scope", "admin"), ("--scope", "submit", "--attribute", "sender=shop")):
        assert "notifications" not in shell.signed("keys", "new", f"k{len(options)}", *options).err
