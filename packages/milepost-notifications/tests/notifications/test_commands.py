"""The commands of notifications, each in a process of its own, against a partner on loopback."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Answer
from tests.cli.conftest import Shell
from tests.cli.work.test_up import port_of
from tests.notifications.partners import Partner, answers, message, wait_for


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner(answers(200, 404, 200)) as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, partner: Partner) -> Shell:
    made = Shell(tmp_path)
    made.write(
        "milepost.toml",
        f"""
ledger = "sqlite:///milepost.db"
applications = ["notifications"]
[notifications]
allow_cidrs = ["127.0.0.0/8"]
[notifications.destinations.crm]
url = "{partner.url}"
""",
    )
    return made


def run(shell: Shell, *args: object) -> Any:
    return shell.ok("notifications", *args, "--json").json


def test_a_message_is_sent_listed_shown_and_replayed(shell: Shell, partner: Partner) -> None:
    sent = shell.ok(
        "notifications",
        "send",
        f"{partner.url}a",
        "--id",
        "m-1",
        "--body",
        '{"a": 1}',
        "--header",
        "X-Colour: red",
    )
    assert sent.out == "m-1 is accepted.\n"
    shell.ok("work", "--until-idle", "0")
    assert (partner.requests[0].body, partner.requests[0].headers["x-colour"]) == (
        b'{"a": 1}',
        "red",
    )
    run(shell, "send", f"{partner.url}b", "--id", "m-2", "--sender", "shop")
    shell.ok("work", "--until-idle", "0")
    listed = run(shell, "list", "--status", "failed")["messages"]
    assert [
        (one["messageId"], one["senderId"], one["destination"], one["status"]) for one in listed
    ] == [("m-2", "shop", "crm", "REJECTED")]
    assert "m-1" in shell.ok("notifications", "list").out
    shown = shell.ok("notifications", "show", "m-2").out
    assert "Try 1: HTTP 404 Not Found; it is not tried again" in shown
    assert "It is a dead letter." in shown
    assert re.search(r"maxRetriesExceeded +false\n", shown), "as in the JSON"
    assert f"  milepost notifications replay '{listed[0]['key']}' --by YOU --reason '…'\n" in shown
    assert "dead letter" not in shell.ok("notifications", "show", "m-1").out
    assert run(shell, "show", "m-2")["attempts"] == 1
    assert "200 OK after " in shell.ok("notifications", "show", "m-1").out
    letters = run(shell, "dead-letters")
    assert (letters["total"], letters["partner"][0]["messages"]) == (1, 1)
    said = shell.ok("notifications", "dead-letters").out
    assert "1 dead letter.\n" in said
    assert (
        f"  milepost notifications replay --destination crm --cause {letters['partner'][0]['cause']} --by YOU --reason '…'\n"
        in said
    )
    assert (
        run(shell, "replay", "--cause", letters["partner"][0]["cause"], "--dry-run")["matched"] == 1
    )
    preview = run(shell, "replay", "--sender", "shop", "--dry-run")
    assert (preview["matched"], preview["replayed"]) == (1, 0)
    assert "1 would be sent again" in shell.ok("notifications", "replay", "--all", "--dry-run").out
    assert shell("notifications", "replay", "--sender", "shop").code == 2, "an act is signed"
    assert "1 of 1 sent again" in shell.signed("notifications", "replay", "--sender", "shop").out
    shell.ok("work", "--until-idle", "0")
    assert run(shell, "show", "m-2")["status"] == "COMPLETED"
    assert "1 sent again" in shell.signed("notifications", "replay", "m-2", "--body", "other").out
    shell.ok("work", "--until-idle", "0")
    assert partner.requests[-1].body == b"other"
    assert re.search(
        r" ops +Sent again with other content: a test\n",
        shell.ok("notifications", "show", "m-2").out,
    )


def test_the_answer_of_the_partner_and_an_address_that_is_refused_are_shown(
    shell: Shell, partner: Partner
) -> None:
    partner.script = answers((404, b'{"error": "no such person"}'))
    run(shell, "send", partner.url, "--id", "m-1")
    internal = "http://10.0.0.1/"
    assert (
        "requests to its address are refused"
        in shell("notifications", "send", internal, "--id", "m-2").err
    )
    fields = {
        "messageId": "m-2",
        "timestamp": "2026-01-31T08:00:00.000Z",
        "senderId": "shop",
        "targetUrl": internal,
    }
    shell.write("list.jsonl", json.dumps(fields) + "\n")
    shell.ok("submit", "notifications", "list.jsonl")
    shell.ok("work", "--until-idle", "0")
    assert (
        '\nThe last answer of the partner:\n{"error": "no such person"}\n'
        in shell.ok("notifications", "show", "m-1").out
    )
    refused = shell.ok("notifications", "show", "m-2").out
    assert re.search(r"\nattempts +1\n", refused)
    assert re.search(r"\ntries +0\n", refused)
    assert "Attempt 1 without a finished request: INVALID_TARGET: 10.0.0.1: " in refused


def test_an_outage_is_begun_shown_and_ended(shell: Shell, partner: Partner) -> None:
    begun = shell.signed("notifications", "outage", "crm", "--until", "2h", "--drain", "5/s")
    assert begun.out.startswith("crm is down until ")
    run(shell, "send", partner.url, "--id", "m-1")
    shell.ok("work", "--until-idle", "0")
    assert partner.requests == []
    [view] = run(shell, "destinations")["destinations"]
    assert (view["state"], view["waiting"], view["paused"]["reason"]) == ("outage", 1, "a test")
    shown = shell.ok("notifications", "destinations").out
    assert "outage" in shown
    assert "a test (by ops, until " in shown
    assert (
        "It waits for crm: a test (by ops, until " in shell.ok("notifications", "show", "m-1").out
    )
    assert shell.signed("notifications", "resume", "crm").out == "crm is resumed.\n"
    assert shell.signed("notifications", "resume", "crm").code == 1
    assert shell.signed("notifications", "pause", "crm").out == "crm is paused.\n"
    wrong = shell.signed("notifications", "outage", "shop", "--until", "2h")
    assert (wrong.code, "there is no destination 'shop'; known are crm" in wrong.err) == (2, True)


def test_a_damaged_record_of_an_outage_hides_no_other_destination(shell: Shell) -> None:
    shell.signed("notifications", "outage", "crm", "--until", "2h")
    shell.signed("notifications", "resume", "crm")
    with closing(
        sqlite3.connect(next(shell.folder.glob("*.db")), isolation_level=None)
    ) as connection:
        changed = connection.execute(
            "UPDATE document SET value = '{}' WHERE kind = 'application' AND name LIKE '%outage/crm'"
        ).rowcount
    assert changed == 1
    assert [view["name"] for view in run(shell, "destinations")["destinations"]] == ["crm"]


def test_a_pause_stays_and_an_outage_gives_way_to_it(shell: Shell, partner: Partner) -> None:
    def paused() -> tuple[str, str, str | None, str | None]:
        [view] = run(shell, "destinations", "crm")["destinations"]
        return view["state"], view["paused"]["by"], view["paused"]["until"], view["paused"]["drain"]

    def act(verb: str, *options: str, by: str = "bob") -> Answer:
        return shell(
            "notifications", verb, "crm", *options, "--by", by, "--reason", f"{verb} of {by}"
        )

    run(shell, "send", partner.url, "--id", "m-1")
    act("outage", "--until", "1h", "--drain", "5/s", by="ann")
    first = paused()
    assert act("outage", "--until", "2h", by="ann").code == 0, "with another end"
    assert (paused()[0], paused()[3], str(paused()[2]) > str(first[2])) == ("outage", "5/s", True)
    assert act("pause", by="ann").out == "crm is paused.\n"
    assert paused() == ("paused", "ann", None, "5/s")
    again = act("pause")
    assert (again.code, again.out.startswith("crm was paused before, by ann since ")) == (0, True)
    assert again.out.endswith(": pause of ann. Nothing was changed.\n")
    refused = act("outage", "--until", "30s")
    assert (
        refused.code,
        "crm is paused by ann since" in refused.err,
        "Resume it when the partner is back" in refused.err,
    ) == (
        1,
        True,
        True,
    )
    assert paused() == ("paused", "ann", None, "5/s")
    shell.ok("work", "--until-idle", "0")
    assert partner.requests == []
    act("resume", by="ann")
    assert "the outage ended by ann at" in shell.ok("notifications", "destinations").out


def test_the_general_resume_releases_the_messages_of_a_destination_that_was_taken_out(
    shell: Shell, partner: Partner
) -> None:
    run(shell, "send", partner.url, "--id", "m-1")
    shell.write(
        "milepost.toml",
        (shell.folder / "milepost.toml")
        .read_text()
        .partition("[notifications.destinations.crm]")[0],
    )
    shell.ok("work", "--until-idle", "0")
    [view] = run(shell, "destinations", "crm")["destinations"]
    assert (view["state"], view["orphaned"], partner.requests) == ("paused", True, [])
    assert (
        shell.signed("resume", "notifications", "deliver", "--lane", "crm").out
        == "notifications/deliver/crm resumed.\n"
    )
    [view] = run(shell, "destinations", "crm")["destinations"]
    assert (view["state"], view["orphaned"]) == ("healthy", False)


def test_the_pause_after_a_410_names_the_commands_that_end_it_everywhere(
    shell: Shell, partner: Partner
) -> None:
    partner.script = answers(410, 200)
    run(shell, "send", partner.url, "--id", "m-1")
    shell.ok("work", "--until-idle", "0")
    said = [shell.ok("notifications", "send", partner.url, "--id", "m-2").out]
    said += [
        shell.ok("notifications", *words).out for words in (("show", "m-2"), ("destinations",))
    ]
    said.append(shell("doctor").out)
    [_, view] = run(shell, "destinations")["destinations"]
    resume, give_up = (
        shlex.split(one)[1:] for one in re.findall("`(milepost .+?)`", view["paused"]["reason"])
    )
    for text in said:
        assert (
            f"run `milepost notifications resume {view['name']} --by YOU --reason '…'`"
            in " ".join(text.split())
        )
    assert "cancel would apply to 1 of 1 item" in shell.ok(*give_up, "--dry-run").out
    assert shell.ok(*resume).out == f"{view['name']} is resumed.\n"
    shell.ok("work", "--until-idle", "0")
    assert run(shell, "show", "m-2")["status"] == "COMPLETED"


def test_the_pause_of_a_destination_that_was_taken_out_names_the_command_that_ends_it(
    shell: Shell, partner: Partner
) -> None:
    run(shell, "send", partner.url, "--id", "m-1")
    shell.write(
        "milepost.toml",
        (shell.folder / "milepost.toml")
        .read_text()
        .partition("[notifications.destinations.crm]")[0],
    )
    shell.ok("work", "--until-idle", "0")
    [view] = run(shell, "destinations", "crm")["destinations"]
    [resume] = re.findall("`(milepost .+?)`", view["paused"]["reason"])
    assert resume in " ".join(shell("doctor").out.split())
    assert shell.ok(*shlex.split(resume)[1:]).out == "crm is resumed.\n"


def test_the_general_resume_ends_an_outage_for_the_pages_too(shell: Shell) -> None:
    shell.signed("notifications", "outage", "crm", "--until", "2h")
    shell.signed("resume", "notifications", "deliver", "--lane", "crm")
    [view] = run(shell, "destinations", "crm")["destinations"]
    assert (view["state"], view["ended_outage"]["ended_by"]) == ("healthy", "ops")


def test_a_message_is_cancelled_and_senders_have_figures(shell: Shell, partner: Partner) -> None:
    run(shell, "send", partner.url, "--id", "m-1", "--at", "2199-01-01T00:00:00Z")
    assert shell.signed("notifications", "cancel", "m-1").out == "m-1 is cancelled.\n"
    assert shell.signed("notifications", "cancel", "m-1").code != 0
    shell.ok("work", "--until-idle", "0")
    [sender] = run(shell, "senders")["senders"]
    assert (sender["sender"], sender["accepted"], sender["cancelled"]) == ("command-line", 1, 1)
    assert "command-line" in shell.ok("notifications", "senders").out


def test_a_scheduled_message_that_was_cancelled_is_sent_again_at_its_time(
    shell: Shell, partner: Partner
) -> None:
    same = (
        "notifications",
        "send",
        partner.url,
        "--id",
        "m-1",
        "--timestamp",
        "2026-01-31T08:00:00Z",
        "--at",
        "2h",
    )
    shell.ok(*same)
    shell.signed("notifications", "cancel", "m-1")
    [key] = [one["key"] for one in run(shell, "list")["messages"]]
    again = shell.ok(*same).out
    assert (
        again
        == f"m-1 was accepted before, and cancelled. To send it all the same: milepost notifications replay '{key}' --by YOU --reason '…'\n"
    )
    assert run(shell, *same[1:])["status"] == "CANCELLED"
    assert "use retry first" in shell.signed("reschedule", "notifications", key, "--at", "now").err
    replay, reschedule = (
        said.rpartition(": ")[2].strip()
        for said in (again, shell.ok(*shlex.split(again.rpartition(": milepost ")[2])).out)
    )
    assert replay.startswith("milepost notifications replay")
    shell.ok("work", "--until-idle", "0")
    assert (run(shell, "show", "m-1")["status"], partner.requests) == ("PENDING", []), (
        "it waits for its time"
    )
    shell.ok(*shlex.split(reschedule)[1:])
    shell.ok("work", "--until-idle", "0")
    assert (run(shell, "show", "m-1")["status"], len(partner.requests)) == ("COMPLETED", 1)


def test_a_message_that_is_sent_again_with_its_timestamp_is_delivered_once(
    shell: Shell, partner: Partner
) -> None:
    same = (
        "notifications",
        "send",
        partner.url,
        "--id",
        "m-1",
        "--timestamp",
        "2026-01-31T08:00:00+01:00",
    )
    assert shell.ok(*same, "--body", "a").out == "m-1 is accepted.\n"
    assert shell.ok(*same, "--body", "a").out == "m-1 was accepted before, and is not sent twice.\n"
    other = shell(*same, "--body", "b")
    assert (other.code, "another method, headers or body" in other.out) == (1, True)
    shell.ok("work", "--until-idle", "0")
    assert [one.body for one in partner.requests] == [b"a"]
    shell.signed("notifications", "replay", "m-1", "--body", "b")
    for body in ("a", "b"):
        assert (
            shell.ok(*same, "--body", body).out
            == "m-1 was accepted before, and is not sent twice.\n"
        )
    assert shell(*same, "--body", "c").code == 1


def test_a_list_is_newest_first_and_continues_on_the_next_page(
    shell: Shell, partner: Partner
) -> None:
    for number in range(5):
        run(shell, "send", partner.url, "--id", f"m-{number}", "--at", "2h")
    assert shell.ok("notifications", "list", "--sender", "shop").out == "No message matches.\n"
    first = shell.ok("notifications", "list", "--limit", "2", "--from", "1h").out
    assert re.search(rf"m-4 .* PENDING +\S+ +{run(shell, 'show', 'm-4')['deliverAt']}\s", first), (
        first
    )
    assert first.index("m-4") < first.index("m-3")
    assert "m-2" not in first
    token = first.split("--after ")[1].strip()
    second = run(shell, "list", "--limit", "2", "--from", "1h", "--after", token)
    assert [one["messageId"] for one in second["messages"]] == ["m-2", "m-1"]
    last = run(shell, "list", "--limit", "2", "--from", "1h", "--after", second["next"])
    assert ([one["messageId"] for one in last["messages"]], last["next"], last["more"]) == (
        ["m-0"],
        None,
        False,
    )
    oldest = run(
        shell, "list", "--limit", "2", "--oldest-first", "--status", "live", "--destination", "crm"
    )
    assert [one["messageId"] for one in oldest["messages"]] == ["m-0", "m-1"]
    other = shell("notifications", "list", "--limit", "2", "--after", token)
    assert (other.code, "belongs to another search" in other.err) == (2, True)
    assert shell.ok("notifications", "list", "--before", "1h").out == "No message matches.\n"
    shell.ok("work", "--until-idle", "0")
    assert partner.requests == [], "all wait for their time"


def test_an_outage_is_given_and_echoed_in_local_time_and_its_end_is_said(
    shell: Shell, partner: Partner
) -> None:
    begun = shell.started(
        "notifications",
        "outage",
        "crm",
        "--until",
        "18:00",
        "--by",
        "ops",
        "--reason",
        "a move",
        TZ="Europe/Berlin",
    )
    assert re.fullmatch(
        r"crm is down until 20\d\d-\d\d-\d\d 18:00 \+0[12]:00 \(CES?T\): a move\n", begun.out
    ), begun
    again = shell.started(
        "notifications",
        "outage",
        "crm",
        "--until",
        "2199-01-31 18:00",
        "--by",
        "ops",
        "--reason",
        "a move",
        TZ="Europe/Berlin",
    )
    assert "until 2199-01-31 18:00" in again.out
    sent = shell.ok("notifications", "send", partner.url, "--id", "m-1")
    assert "crm holds its messages back: a move (by ops, until 2199-01-31 " in sent.out
    shell.signed("notifications", "resume", "crm")
    assert "the outage ended by ops at " in shell.ok("notifications", "destinations", "crm").out
    past = shell.signed("notifications", "outage", "crm", "--until", "2020-01-31")
    assert (past.code, "which is 2020-01-31 00:00" in past.err) == (2, True)


def test_a_failing_destination_says_its_last_error_and_how_its_outage_ended(
    shell: Shell, tmp_path: Path
) -> None:
    with Partner(answers(404)) as refusing:
        shell.write(
            "milepost.toml",
            (tmp_path / "milepost.toml").read_text().partition("url =")[0]
            + f'url = "{refusing.url}"\n',
        )
        shell.signed("notifications", "outage", "crm", "--until", "2h")
        shell.signed("notifications", "resume", "crm")
        run(shell, "send", refusing.url, "--id", "m-1")
        shell.ok("work", "--until-idle", "0")
    run(shell, "senders")  # counts the tries
    shown = shell.ok("notifications", "destinations").out
    assert re.search(r"crm +failing .* HTTP 404 Not Found.*; the outage ended by ops at ", shown), (
        shown
    )


def test_a_message_that_waits_for_its_next_try_names_its_time_and_what_can_be_done(
    shell: Shell, partner: Partner
) -> None:
    partner.script = answers((429, b"", "Retry-After: 3000"))
    run(shell, "send", partner.url, "--id", "m-1")
    shell.ok("work", "--until-idle", "0")
    at = run(shell, "show", "m-1")["nextRetryAt"]
    shown = shell.ok("notifications", "show", "m-1").out
    replay, cancel = (shell.signed("notifications", verb, "m-1") for verb in ("replay", "cancel"))
    assert (replay.code, cancel.code) == (1, 1)
    for said in (shown, replay.err):
        assert f"ts next try is at {at}. To try it now: milepost resend notifications 'm-1#" in said
        assert "; to give it up: milepost cancel notifications 'm-1#" in said
    assert "To give up its further tries: milepost cancel notifications 'm-1#" in cancel.err
    now = replay.err.partition("To try it now: ")[2].partition("; to give")[0]
    never = cancel.err.partition("further tries: ")[2]
    partner.script = answers(503)
    assert shell.ok(*shlex.split(now)[1:])
    shell.ok("work", "--until-idle", "0")
    assert [one.headers["x-delivery-attempt"] for one in partner.requests] == ["1", "2"]
    assert shell.ok(*shlex.split(never)[1:])
    assert run(shell, "show", "m-1")["status"] == "CANCELLED"
    assert "it has ended (CANCELLED)" in shell.signed("notifications", "cancel", "m-1").err


def test_an_open_breaker_says_when_it_probes(shell: Shell, tmp_path: Path) -> None:
    with Partner(answers(*[503] * 5)) as down:
        head = (tmp_path / "milepost.toml").read_text().partition("url =")[0]
        shell.write(
            "milepost.toml",
            f'{head}url = "{down.url}"\nbreaker = {{ failures = 1, cooldown = "1h" }}\n',
        )
        run(shell, "send", down.url, "--id", "m-1")
        shell.ok("work", "--until-idle", "0")
    said = r"its breaker is open, no probe before 20\d\d-.*; the last failure: SERVER_ERROR: HTTP 503 Service Unavailable\n"
    assert re.search(f"crm +open .*{said}", shell.ok("notifications", "destinations").out)
    assert re.search(f"It waits for crm: {said}", shell.ok("notifications", "show", "m-1").out)


def test_mistakes_are_said_plainly(shell: Shell) -> None:
    for args, text in (
        (("send", "ftp://x/"), "Invalid targetUrl"),
        (("send", "http://127.0.0.1/", "--header", "X"), "write 'NAME: VALUE'"),
        (("send", "http://127.0.0.1/", "--body", "@nowhere"), "No such file"),
        (("show", "m-9"), "there is no message 'm-9'"),
        (("list", "--status", "gone"), "there is no status 'gone'"),
        (("list", "--from", "yesterday"), "from is 'yesterday'; it must be a time such as"),
        (("destinations", "shop"), "there is no destination 'shop'; known are crm"),
        (("pause", "crm"), "recorded with a name and a reason\n"),
    ):
        answer = shell("notifications", *args)
        assert (answer.code, text in answer.err) == (2, True), answer
    assert "or --all" in shell.signed("notifications", "replay").err
    assert (
        "pace is 'fast'; write calls per time"
        in shell.signed("notifications", "replay", "--all", "--pace", "fast").err
    )
    run(shell, "send", "http://127.0.0.1:9/", "--at", "2h")
    nothing = shell.ok("notifications", "list", "--destination", "shop").out
    assert (
        nothing
        == "No message matches. There is no destination 'shop'; known are crm, and HOST:PORT or SENDER@HOST:PORT of unregistered targets.\n"
    )
    assert (
        "no cause 'x'; 'milepost notifications dead-letters' names"
        in shell.ok("notifications", "list", "--cause", "x").out
    )
    assert shell.ok("notifications", "list", "--destination", "crm").out == "No message matches.\n"
    assert (
        shell.ok("notifications", "replay", "--destination", "crm", "--dry-run").out
        == "0 would be sent again.\n"
    )
    assert (
        "sent again. There is no destination 'shop'"
        in shell.ok("notifications", "replay", "--destination", "shop", "--dry-run").out
    )


def test_messages_are_accepted_in_one_process_and_delivered_by_two_others_on_one_file(
    shell: Shell, partner: Partner
) -> None:
    partner.script = answers(200)
    errors = shell.folder / "errors.txt"
    with errors.open("w") as said:
        command = shell.command("up", "--processes", "2", "--listen", "127.0.0.1:0")
        running = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stderr=said)
    try:
        wait_for(lambda: "listening at" in errors.read_text())
        connection = http.client.HTTPConnection(
            "127.0.0.1", port_of(errors.read_text()), timeout=60
        )
        for number in range(40):
            sent = json.dumps(message(partner.url, messageId=f"m-{number}"))
            connection.request("POST", "/message", sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["duplicateDetected"]) == (200, False)
        connection.close()
        wait_for(lambda: len(partner.requests) == 40)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0, errors.read_text()
    finally:
        running.kill()
        running.wait()
    assert sorted(one.headers["x-message-id"] for one in partner.requests) == sorted(
        f"m-{number}" for number in range(40)
    )
    [view] = run(shell, "destinations")["destinations"]
    assert (view["waiting"], view["in_progress"]) == (0, 0)


def test_a_command_says_that_a_secret_is_missing_in_its_shell_and_nothing_of_the_service(
    shell: Shell, tmp_path: Path
) -> None:
    shell.write(
        "milepost.toml",
        (tmp_path / "milepost.toml").read_text() + 'signing_secret_env = "CRM_SECRET_OF_UP"\n',
    )
    run(shell, "send", "http://127.0.0.1:9/", "--id", "m-1")
    [view] = run(shell, "destinations")["destinations"]
    assert (
        view["state"],
        view["fault"].startswith("in this shell, which says nothing of 'milepost up': "),
    ) == ("healthy", True)
    shown = shell.ok("notifications", "destinations").out
    assert (
        "the variable CRM_SECRET_OF_UP is not set here; 'milepost up' needs it in its environment"
        in shown
    )
    assert "misconfigured" not in shown
    assert "sees the environment of that shell alone" in shell("doctor", "--json").out


def test_a_file_that_holds_no_secret_is_named_in_full(shell: Shell, tmp_path: Path) -> None:
    shell.write("crm.secret", "whsec_no\n")
    shell.write(
        "milepost.toml",
        (tmp_path / "milepost.toml").read_text() + 'signing_secret_file = "crm.secret"\n',
    )
    run(shell, "send", "http://127.0.0.1:9/", "--id", "m-1")
    said = shell.ok("work", "--until-idle", "0").err
    assert "destinations.crm.signing_secret_file: crm.secret: a webhook secret " in said


def test_the_log_says_that_a_410_pauses_a_url(shell: Shell, tmp_path: Path) -> None:
    with Partner(answers(410)) as gone:
        shell.write(
            "milepost.toml",
            (tmp_path / "milepost.toml").read_text().partition("url =")[0]
            + f'url = "{gone.url}"\n',
        )
        for number in range(3):
            run(shell, "send", gone.url, "--id", f"m-{number}")
        said = shell.ok("work", "--until-idle", "0").err
    assert (
        len(
            re.findall(
                rf"messages to crm\+\w+ wait, since it is paused: {gone.url} answered 410 Gone to command-line",
                said,
            )
        )
        == 1
    )
