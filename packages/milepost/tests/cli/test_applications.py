"""Applications on the command line: named in milepost.toml, the environment or by an installed
package."""

from __future__ import annotations

import pytest
from tests.project import PACKAGES

SOURCE = PACKAGES / "milepost/tests/application/parcels_application.py"
TOML = 'applications = ["desk.py"]\n[parcels-desk]\nheaviest = 5\n'


@pytest.fixture
def desk(bare):
    bare.write("desk.py", SOURCE.read_text(encoding="utf-8"))
    bare.write("milepost.toml", TOML)
    return bare


def test_its_commands_are_a_group_of_its_name(desk) -> None:
    assert desk.ok("parcels-desk", "hand-in", "a", "--grams", "6").out == "a: new, at most 5 g\n"
    assert desk.ok("parcels-desk", "count").out == "1 in all\n"
    assert desk.ok("parcels-desk", "limits").out == "5 g\n"
    assert desk.ok("parcels-desk", "limits", MILEPOST_PARCELS_DESK_HEAVIEST="9").out == "9 g\n"
    desk.ok("up", "--until-idle", "0", "--no-listen")
    assert desk.ok("list", "weighed", "--status", "failed", "--json").json["items"][0]["key"] == "a"
    [found] = [
        found for found in desk.ok("doctor", "--json").json["findings"] if found["about"] == "scale"
    ]
    assert found["what"] == "the scale answers"


def test_its_help_is_there_and_in_milepost_s_own(desk) -> None:
    assert "Applications:\n  parcels-desk  Parcels that are weighed." in desk.ok("--help").out
    told = desk.ok("parcels-desk", "--help").out
    assert "Parcels that are weighed." in told
    assert "hand-in  Hand in a parcel." in told
    assert "--grams INTEGER" in desk.ok("parcels-desk", "hand-in", "--help").out


def test_help_says_what_applications_are_for_and_is_shown_although_one_is_missing(bare) -> None:
    bare.write("milepost.toml", 'applications = ["deposits", "no-such", "nowhere.py"]\n')
    shown = " ".join(bare.ok("--help").out.split())
    assert (
        "Applications: deposits Every DOI of a publisher's master list is deposited once" in shown
    )
    assert "no-such The commands of no-such. nowhere.py It cannot be used: there is no " in shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stats", "No such command 'stats'. Did you mean 'status'?"),
        ("parcel-desk", "No such command 'parcel-desk'. Did you mean 'parcels-desk'?"),
        (
            "deposits",
            "No such command 'deposits'. The application deposits is not in use in this folder: name it in milepost.toml,"
            ' applications = ["deposits"].',
        ),
        ("xyzzy", "No such command 'xyzzy'."),
    ],
)
def test_a_command_that_does_not_exist_names_a_similar_one(desk, name: str, said: str) -> None:
    answer = desk(name)
    assert (answer.code, answer.err.strip().splitlines()[-1]) == (2, f"Error: {said}")


def test_a_command_that_reads_makes_no_ledger_and_one_that_returns_a_number_ends_with_it(
    desk,
) -> None:
    answer = desk("parcels-desk", "count")
    assert answer.code == 1
    assert "there is no ledger" in answer.err
    desk.ok("work", "--until-idle", "0")
    assert desk("parcels-desk", "count").code == 3


def test_the_environment_names_others_in_their_place(desk) -> None:
    assert desk("parcels-desk", "limits", MILEPOST_APPLICATIONS="").code == 2
    assert (
        "no route is configured" in desk("work", "--until-idle", "0", MILEPOST_APPLICATIONS="").err
    )


def test_settings_that_are_wrong_are_told_with_their_field(desk) -> None:
    desk.write("milepost.toml", TOML.replace("heaviest = 5", 'heaviest = "5"'))
    answer = desk("status")
    assert (answer.code, answer.err.strip()) == (
        2,
        "milepost: milepost.toml: [parcels-desk] heaviest: expected a whole number, got text",
    )


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ('applications = ["no-such"]', "there is no application 'no-such'"),
        (
            'applications = ["notification"]',
            "write the name of one that is installed (deposits, notifications, postingest), a file",
        ),
        (
            'applications = ["desk.py:none"]',
            "desk.py has no application 'none'; it has application",
        ),
        (
            'applications = ["desk.py", "desk.py"]',
            "an application cannot be called 'parcels-desk': that is the name of another application already",
        ),
        (
            'applications = ["status.py"]',
            "an application cannot be called 'status': that is the name of a command already",
        ),
        (
            "[parcels-desk]\nheaviest = 5",
            "[parcels-desk] is the table of no application; name it: applications",
        ),
        (
            'applications = ["desk.py"]\n[other]\na = 1',
            "[other] is the table of no application; applications names parcels-desk",
        ),
        ("applications = 3", "applications is 3; it must be a list of texts"),
    ],
)
def test_mistakes_in_naming_them(desk, toml: str, told: str) -> None:
    desk.write(
        "status.py",
        "import milepost.application as mpa\napplication = mpa.Application('status', mpa.AppSettings)\n",
    )
    desk.write("milepost.toml", toml + "\n")
    answer = desk("status")
    assert answer.code == 2, answer
    assert told in answer.err


def test_an_installed_package_has_one_by_entry_point(desk) -> None:
    desk.write("milepost.toml", 'applications = ["parcels-desk"]\n')
    package = desk.folder / "parcels_desk-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: parcels-desk\nVersion: 1.0\n", encoding="utf-8"
    )
    (package / "entry_points.txt").write_text(
        "[milepost.applications]\nparcels-desk = desk:application\n", encoding="utf-8"
    )
    assert desk.ok("parcels-desk", "limits", PYTHONPATH=str(desk.folder)).out == "1000 g\n"
