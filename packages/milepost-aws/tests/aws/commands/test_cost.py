"""`milepost cost`: the cost of items, from the routes alone."""

from __future__ import annotations

import pytest


def test_it_needs_no_ledger_and_makes_none(shell) -> None:
    answer = shell.ok("cost")
    assert "DynamoDB writes" in answer.out
    assert "$ for 1,000,000" in answer.out
    assert "List prices as of 20" in answer.out
    assert sorted(path.name for path in shell.folder.iterdir() if path.name != "__pycache__") == [
        "milepost.toml",
        "parcels.py",
    ]


def test_it_needs_no_boto3(shell) -> None:
    shell.write("boto3.py", "raise ImportError('not installed')")
    assert shell.ok("cost", PYTHONPATH=str(shell.folder)).out


def test_the_sum_is_the_sum_and_n_items_are_n_times_one(shell) -> None:
    answer = shell.ok("cost", "--items", "2.5e6", "--json").json
    (route,) = answer["routes"]
    assert route["stages"] == [
        ["weigh", "handler"],
        ["stamp", "handler"],
        ["delivered", "external"],
    ]
    million, all_of_them = route["dollars_a_million"], route["dollars_for_items"]
    assert sum(
        dollars for service, dollars in million.items() if service != "in all"
    ) == pytest.approx(million["in all"])
    assert all_of_them["in all"] == pytest.approx(2.5 * million["in all"])
    assert answer["items"] == 2_500_000
    assert answer["prices_as_of"] in answer["note"]
    units = route["for_an_item"]["units"]
    assert sum(n for name, n in units.items() if name.endswith(" write")) == pytest.approx(
        route["for_an_item"]["write_units"]
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--retries", "0.3"),
        ("--payload", "3000"),
        ("--wait", "30d"),
        ("--checks", "50"),
        ("--batch", "1"),
        ("--takes", "10s"),
        ("--region", "eu-west-2"),
    ],
    ids=lambda options: options[0],
)
def test_what_makes_more_work_costs_more(shell, options: tuple[str, str]) -> None:
    def in_all(*given: str) -> float:
        return shell.ok("cost", "--json", *given).json["routes"][0]["dollars_a_million"]["in all"]

    assert in_all(*options) > in_all()


def test_routes_are_chosen_by_name(shell) -> None:
    shell.write(
        "letters.py",
        'import milepost as mp\n\nletters = mp.Route("letters")\nletters.external("posted")\n',
    )
    both = ("--routes", "parcels.py", "--routes", "letters.py")
    assert [route["route"] for route in shell.ok("cost", *both, "--json").json["routes"]] == [
        "parcels",
        "letters",
    ]
    assert [
        route["route"]
        for route in shell.ok("cost", *both, "--route", "letters", "--json").json["routes"]
    ] == ["letters"]
    wrong = shell("cost", *both, "--route", "stamps")
    assert wrong.code == 2
    assert "there is no route 'stamps'; routes are: parcels, letters" in wrong.err


def test_mistakes_are_told(shell) -> None:
    assert "us-east-1, eu-west-2" in shell("cost", "--region", "mars-north-1").err
    assert shell("cost", "--retries", "1").code == 2
    assert shell("cost", "--batch", "101").code == 2
    assert "--wait" in shell("cost", "--wait", "soon").err


def test_without_routes_it_says_what_to_give(bare) -> None:
    answer = bare("cost")
    assert answer.code != 0
    assert "no route is configured" in answer.err
