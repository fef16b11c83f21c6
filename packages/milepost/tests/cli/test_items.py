"""The commands used most: submit, work, show, list."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess

import pytest

from milepost.cli.work import foreground


def test_a_list_is_reconciled(shell) -> None:
    shell.write("list.jsonl", '{"id": "A"}\n{"id": "B"}\nnot json\n{"id": "A"}\n{"x": 1}\n')
    answer = shell("submit", "parcels", "list.jsonl", "--json")
    assert answer.code == 1
    counts = answer.json["counts"]
    assert (counts["new"], counts["repeated"], counts["malformed"]) == (2, 1, 2)
    assert [bad["line"] for bad in answer.json["malformed"]] == [3, 5]
    plain = shell("submit", "parcels", "list.jsonl")
    assert plain.code == 1
    assert "line 3:" in plain.out
    assert "the field 'id' is missing" in plain.out


def test_a_csv_without_the_keys_column_needs_to_be_said_to_have_no_header(shell) -> None:
    shell.write("list.csv", "A,1\nB,2\n")
    refused = shell("submit", "parcels", "list.csv")
    assert refused.code == 2
    assert "list.csv, line 1: the header lacks the column 'id'" in refused.err
    assert (
        shell.ok("submit", "parcels", "list.csv", "--no-header", "--json").json["counts"]["new"]
        == 2
    )
    assert shell("submit", "parcels", "--item", '{"id": "C"}', "--no-header").code == 2


def test_a_dry_run_changes_nothing_and_a_full_list_tells_what_vanished(shell) -> None:
    shell.submit({"id": "A"})
    shell.write("all.txt", "A\nB\n")
    dry = shell.ok("submit", "parcels", "all.txt", "--dry-run", "--json").json
    assert (dry["counts"]["new"], dry["id"], dry["dry_run"]) == (1, "", True)
    assert shell.ok("status", "--json").json["routes"]["parcels"]["total"] == 1
    shell.ok("submit", "parcels", "all.txt", "--full", "--name", "master")
    shell.write("all.txt", "B\n")
    assert shell.ok("submit", "parcels", "all.txt", "--full", "--json").json["vanished"] == ["A"]
    keys = [
        item["key"]
        for item in shell.ok("list", "parcels", "--list", "master", "--json").json["items"]
    ]
    assert keys == ["B"]


def test_a_dry_run_before_there_is_a_ledger_makes_none(shell) -> None:
    assert (
        shell.ok("submit", "parcels", "-", "--dry-run", "--json", stdin="A\nB\n").json["counts"][
            "new"
        ]
        == 2
    )
    assert (
        shell.ok("submit", "parcels", "--item", '{"id": "A"}', "--dry-run").out
        == "A: would be accepted at weigh\n"
    )
    assert sorted(path.name for path in shell.folder.iterdir() if path.name != "__pycache__") == [
        "milepost.toml",
        "parcels.py",
    ]


def test_one_item_is_new_then_known_then_changed(shell) -> None:
    first = shell.ok(
        "submit", "parcels", "--item", '{"id": "A", "n": 1}', "--correlation-id", "c-1", "--json"
    )
    assert first.json["answer"] == "new"
    assert (
        shell.ok("submit", "parcels", "--item", '{"id": "A", "n": 1}', "--json").json["answer"]
        == "known"
    )
    other = shell("submit", "parcels", "--item", '{"id": "A", "n": 2}')
    assert other.code == 1
    assert "other content" in other.err
    assert shell.ok("show", "parcels", "A", "--json").json["correlation_id"] == "c-1"
    assert shell("submit", "parcels", "--item", '{"n": 2}').code == 1


@pytest.mark.parametrize(
    "args",
    [
        ("submit", "parcels"),
        ("submit", "parcels", "list.txt", "--item", "{}"),
        ("submit", "parcels", "--item", "{"),
        ("submit", "parcels", "--item", "{}", "--full"),
        ("submit", "parcels", "none.txt"),
        ("submit", "letters", "--item", "{}"),
        ("submit", "parcels", "list.txt", "--format", "xml"),
    ],
)
def test_submit_called_wrongly(shell, args) -> None:
    answer = shell(*args)
    assert answer.code == 2
    assert answer.err


def test_work_until_idle_then_status_and_show(shell) -> None:
    shell.submit(
        {"id": "A"},
        {"id": "B", "torn": True},
        {"id": "C", "busy": True},
        {"id": "D", "later": True},
    )
    said = shell.ok("work", "--until-idle")
    assert "1 REJECTED" in said.err
    assert said.out == ""
    assert shell.ok("status", "--json").json == {
        "routes": {
            "parcels": {
                "total": 4,
                "statuses": {"QUEUED": 1, "WAITING": 1, "MAX_RETRIES_EXCEEDED": 1, "REJECTED": 1},
                "stages": {
                    "weigh": {"WAITING": 1, "MAX_RETRIES_EXCEEDED": 1, "REJECTED": 1},
                    "stamp": {},
                    "delivered": {"QUEUED": 1},
                },
                "unknown_stages": [],
            }
        }
    }
    view = shell.ok("show", "parcels", "C", "--json").json
    assert (view["status"], view["attempts"], view["error"]["category"]) == (
        "MAX_RETRIES_EXCEEDED",
        2,
        "BUSY",
    )
    assert [line["reason"] for line in view["history"]] == ["accepted", "retry", "exhausted"]
    assert [line.get("attempt_number") for line in view["history"]] == [None, 1, 2]
    assert view["verified"] is True
    done = shell.ok("show", "parcels", "A", "--json").json
    assert done["results"] == {"weigh": {"grams": 340}}


def test_show_tells_a_story_and_an_unknown_key_fails(shell) -> None:
    shell.submit({"id": "D", "later": True})
    shell.ok("work", "--until-idle", "0.5")
    story = shell.ok("show", "parcels", "D").out
    assert "At 'weigh' (stage 1 of 3): WAITING" in story
    assert "not brought yet" in story
    assert (
        "The next check is in 60 min" in story
        or "The next check is in 1 h" in story
        or "The next check is in 59 min" in story
    )
    assert "milepost cancel parcels D --by YOU" in story
    missing = shell("show", "parcels", "Z")
    assert missing.code == 1
    assert "never had an item with the key 'Z'" in missing.err
    assert shell("show", "parcels", "Z", "--json").out == ""
    assert shell("show", "letters", "Z").code == 2


def test_plain_words_fit_eighty_columns_without_colour(shell) -> None:
    shell.submit({"id": "A"}, {"id": "B", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    for command in (
        ("status",),
        ("show", "parcels", "B"),
        ("doctor",),
        ("groups",),
        ("list", "parcels", "--status", "failed"),
    ):
        out = shell.ok(*command).out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 80, command
        assert all(line == line.rstrip() for line in out.splitlines())


def test_list_takes_filters(shell) -> None:
    shell.submit({"id": "A", "depot": "west"}, {"id": "B", "torn": True}, {"id": "C", "busy": True})
    shell.ok("work", "--until-idle")

    def keys(*args: str) -> list[str]:
        return [item["key"] for item in shell.ok("list", "parcels", "--json", *args).json["items"]]

    assert keys() == ["C", "B", "A"]
    assert keys("--oldest-first") == ["A", "B", "C"]
    first = shell.ok("list", "parcels", "--limit", "2")
    token = first.out.split("--after ")[1].strip()
    assert keys("--limit", "2", "--after", token) == ["A"]
    assert (
        "belongs to another search"
        in shell("list", "parcels", "--status", "live", "--after", token).err
    )
    assert shell("list", "parcels", "--next", "--after", token).code == 2
    assert sorted(keys("--status", "failed")) == ["B", "C"]
    assert keys("--status", "rejected") == ["B"]
    assert keys("--status", "live") == ["A"]
    assert keys("--stage", "delivered") == ["A"]
    assert keys("--lane", "west") == ["A"]
    assert keys("--older-than", "1h") == []
    [torn] = [
        group
        for group in shell.ok("groups", "parcels", "--json").json["groups"]
        if group["category"] == "TORN"
    ]
    assert (torn["now"], torn["total"], torn["sample"]) == (1, 1, "it is torn")
    assert keys("--group", torn["group"]) == ["B"]
    short = shell.ok("list", "parcels", "--limit", "2", "--json").json
    assert (len(short["items"]), short["more"]) == (2, True)
    assert "and more" in shell.ok("list", "parcels", "--limit", "2").out
    for wrong in (
        ("--status", "odd"),
        ("--stage", "odd"),
        ("--group", "odd"),
        ("--list", "odd"),
        ("--older-than", "odd"),
    ):
        assert shell("list", "parcels", *wrong).code == 2


def test_export_as_jsonl_and_csv(shell) -> None:
    shell.submit({"id": "A"}, {"id": "B", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    lines = [
        json.loads(line) for line in shell.ok("export", "parcels", "--history").out.splitlines()
    ]
    assert [(line["key"], line["status"]) for line in lines] == [("A", "QUEUED"), ("B", "REJECTED")]
    assert lines[1]["input"] == {"id": "B", "torn": True}
    assert lines[1]["history"][-1]["error_category"] == "TORN"
    shell.ok("export", "parcels", "--format", "csv", "-o", "out.csv", "--status", "failed")
    rows = list(csv.DictReader(io.StringIO((shell.folder / "out.csv").read_text())))
    assert [
        (row["key"], row["error_category"], json.loads(row["input"])["torn"]) for row in rows
    ] == [("B", "TORN", True)]
    assert shell("export", "parcels", "--format", "csv", "--history").code == 2


def test_watch_prints_plain_lines_or_objects(shell) -> None:
    shell.submit({"id": "A"})
    lines = shell.ok("watch", "--for", "0.3s", "--every", "0.1s").out.splitlines()
    assert len(lines) >= 2
    assert "parcels: 0/1 ended" in lines[0]
    assert "weigh 1" in lines[0]
    view = json.loads(shell.ok("watch", "parcels", "--once", "--json").out)["routes"]["parcels"]
    assert (view["total"], [stage["name"] for stage in view["stages"]]) == (
        1,
        ["weigh", "stamp", "delivered"],
    )
    assert shell("watch", "letters", "--once").code == 2
    assert shell("watch", "--every", "0").code == 2


def test_up_tells_subscribers_and_stops_at_sigterm(shell) -> None:
    shell.write("milepost.toml", 'routes = ["parcels.py"]\nsubscribers = ["log", "hear.py:hear"]\n')
    shell.write(
        "hear.py", "def hear(event):\n    open('heard.txt', 'a').write(event['type'] + '\\n')\n"
    )
    shell.submit({"id": "A"})
    done = shell.ok("up", "--until-idle")
    told = [json.loads(line)["type"] for line in done.out.splitlines()]
    assert told == [
        "milepost.item.accepted",
        "milepost.item.advanced",
        "milepost.item.advanced",
        "milepost.item.offered",
    ]
    assert (shell.folder / "heard.txt").read_text().split() == told
    assert {entry["name"] for entry in shell.ok("subscribers", "--json").json["subscribers"]} == {
        "log",
        "hear",
    }
    assert "up to date" in shell.ok("doctor").out
    running = subprocess.Popen(
        shell.command("up", "--no-listen"),
        cwd=shell.folder,
        env=shell.env,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert "until Ctrl-C" in running.stderr.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0
    assert "SIGTERM: finishing running work" in running.stderr.read()
    running.stderr.close()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_in_the_midst_of_a_word_stops_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """SIGHUP comes when the terminal is closed."""

    def interrupted(text: str) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(foreground, "say", interrupted)
    before = [
        (number, signal.getsignal(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    stopped: list[bool] = []
    try:
        foreground.stop_on_signal(lambda: stopped.append(True))
        signal.raise_signal(signal.Signals[name])
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    assert stopped == [True]
    assert f"{name}: finishing running work" in capfd.readouterr().err


def test_who_says_that_a_closed_terminal_is_to_be_ignored_is_obeyed() -> None:
    before = [
        (number, signal.getsignal(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        foreground.stop_on_signal(lambda: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_a_subscriber_that_cannot_be_found(shell) -> None:
    shell.submit({"id": "A"})
    for spec, said in (
        ("fax", "unknown subscriber 'fax'"),
        ("parcels.py:none", "has no function 'none'"),
    ):
        shell.write("milepost.toml", f'routes = ["parcels.py"]\nsubscribers = ["{spec}"]\n')
        answer = shell("up", "--until-idle")
        assert answer.code == 2
        assert said in answer.err


def test_a_reader_that_has_had_enough_ends_it_quietly(shell) -> None:
    shell.submit(*({"id": f"K{n}", "x": "y" * 200} for n in range(2000)))
    reader = subprocess.Popen(
        shell.command("export", "parcels"),
        cwd=shell.folder,
        env=shell.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()
    assert reader.stderr.read() == b""
    assert reader.wait(20) == 1
    reader.stderr.close()


def test_failed_items_whose_rows_have_left_are_listed_from_their_seals(shell) -> None:
    shell.submit({"id": "A", "torn": True}, {"id": "B", "torn": True}, {"id": "C"})
    shell.ok("work", "--until-idle")
    shell.ok(
        "prune",
        "parcels",
        "--older-than",
        "0s",
        "--status",
        "failed",
        "--by",
        "ops",
        "--reason",
        "room",
    )
    listed = shell.ok("list", "parcels", "--status", "failed")
    assert "Failed, and their rows have left the ledger; only their seals are left:" in listed.flat
    assert "'milepost retry parcels KEY' says how each is started again." in listed.flat
    assert "No item matches" not in listed.out
    as_json = shell.ok("list", "parcels", "--status", "failed", "--json").json
    assert as_json["items"] == []
    assert [(item["key"], item["status"]) for item in as_json["left"]] == [
        ("A", "REJECTED"),
        ("B", "REJECTED"),
    ]
    assert "left" not in shell.ok("list", "parcels", "--json").json
