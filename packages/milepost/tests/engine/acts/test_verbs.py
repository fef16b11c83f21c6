"""Verbs of operators, compared with the one function that took every option of every verb."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.engine.world import ROUTE, World, parcels

from milepost.core import confirmations, operators
from milepost.core.change import Change
from milepost.core.errors import UsageError
from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome, Reject, outcome_to_builtins, storage_fault
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso, moment_ms
from milepost.core.values.refusal import Refusal
from milepost.engine.act_log import ActReport, select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.replacement import read_content, replaced
from milepost.engine.acts.verbs import VERB_CLASSES, ActRun, recorded_verb, verb_of
from milepost.engine.intake import content_digest
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import Query
from milepost_testing.clock import SeededChance, VirtualClock

AUTHOR: dict[str, Any] = {"by": "ops", "why": "checked by hand", "act": "act-1"}
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "stage": st.sampled_from(["weigh", "stamp", "Delivered", "nowhere"]),
    "as_new": st.booleans(),
    "outcome": st.sampled_from(
        [Done(True), Done(False), Done({"n": 1}), Reject("wet"), Done({1, 2})]
    ),
    "force": st.booleans(),
    "content": st.sampled_from([{"id": "queued", "n": 2}, {"id": "other"}, {"n": 1}, None]),
    "here": st.booleans(),
    "rerun": st.booleans(),
    "not_before": st.sampled_from(["2h", "2030-01-01", "tomorrow"]),
    "pace": st.sampled_from([0.5, 20.0]),
}
OWNERS = {
    "content": "replace",
    "here": "replace",
    "rerun": "replace",
    "not_before": "reschedule",
    "pace": "rerun",
}
"""Options that one verb takes alone."""
BY_QUERY = {"query": Query(route=ROUTE)}
some_options = st.fixed_dictionaries({}, optional=OPTIONS)
one_option = st.sampled_from(list(OPTIONS)).flatmap(
    lambda name: st.fixed_dictionaries({name: OPTIONS[name]})
)
options_of_acts = st.one_of(some_options, one_option, st.just({}))
items_of_acts = st.sampled_from([{"keys": ["queued"]}, {"keys": ["queued", "done"]}, BY_QUERY])


def small_world() -> World:
    """Items in each kind of status."""
    clock = VirtualClock()
    world = World(MemoryLedger(), clock, parcels()).registered()
    world.add("done")
    world.work("weigh")
    world.work("stamp")
    world.settle([world.item("done")], Done(True))
    world.add("offered")
    world.work("weigh")
    world.work("stamp")
    world.add("rejected")
    world.work("weigh", Reject("no such parcel"))
    world.add("claimed")
    world.claim("weigh")
    world.add("queued")
    clock.advance("1m")
    return world


WORLD = small_world()
KEYS = ("done", "offered", "rejected", "claimed", "queued")


def old_faults(verb: str, options: dict[str, Any], items: dict[str, Any]) -> list[str]:
    """The checks of the one function, pair by pair, in its order."""
    stage, outcome = options.get("stage"), options.get("outcome")
    storage = None if outcome is None else storage_fault(outcome)
    forced_other = verb != "confirm" or not isinstance(outcome or Done(True), Done)
    content_given = options.get("content", UNSET) is not UNSET
    checks = [
        (stage and verb not in ("retry", "confirm", "rerun"), f"{verb} takes no stage; only retry, confirm and rerun do"),
        (options.get("as_new") and verb not in ("retry", "rerun"), f"{verb} does not take 'as new'; only retry and rerun do"),
        (outcome is not None and verb != "confirm", f"{verb} takes no outcome; only confirm does"),
        (options.get("force") and forced_other, "only a confirmation that a stage is done can be forced"),
        (storage is not None, storage),
        (stage and stage not in WORLD.plan.by_name, WORLD.plan.unknown_stage(stage or "")),
        *((_is_given(name, options) and verb != owner, f"{name} needs {owner}, not {verb}") for name, owner in OWNERS.items()),
        (verb == "reschedule" and "not_before" not in options, "give the time: not_before (--at)"),
        ("pace" in options and "query" not in items, "a pace needs a filter, not keys"),
        (verb == "replace" and not (content_given and len(items.get("keys", ())) == 1), "replace needs one key and the new content; for many items submit a list with replace-changed"),
        *_faults_of_values(verb, options),
    ]  # fmt: skip
    if verb not in operators.VERBS:
        return [f"there is no act 'mend'; acts are {', '.join(operators.VERBS)}"]
    return [str(text) for wrong, text in checks if wrong]


def _is_given(name: str, options: dict[str, Any]) -> bool:
    return name in options and options[name] is not False


def _faults_of_values(verb: str, options: dict[str, Any]) -> list[tuple[bool, str]]:
    """What cannot be read, of the options of this verb."""
    faults = []
    if verb == "replace" and "content" in options:
        try:
            read_content(WORLD.plan, options["content"])
        except UsageError as error:
            faults.append((True, str(error)))
    if verb == "reschedule" and "not_before" in options:
        try:
            moment_ms(options["not_before"], WORLD.clock.now(), "not_before")
        except UsageError as error:
            faults.append((True, str(error)))
    return faults


@pytest.mark.parametrize("verb", [*operators.VERBS, "mend"])
@given(options_of_acts, items_of_acts)
def test_a_wrong_option_is_refused_in_the_same_words(
    verb: str, options: dict[str, Any], items: dict[str, Any]
) -> None:
    """Of several wrong options either form names one; which is named first may differ."""
    faults = old_faults(verb, options, items)
    error = fault(verb, options, items)
    assert (error is None) == (not faults)
    assert error is None or error in faults


def fault(verb: str, options: dict[str, Any], items: dict[str, Any]) -> str | None:
    """The error of an act with these options; None if it is done."""
    selection = select(WORLD.ctx, ROUTE, **items)
    try:
        act(WORLD.ctx, selection, verb_of(verb, **options), by="", reason="", dry_run=True)
    except UsageError as error:
        return str(error)
    return None


def old_record(options: dict[str, Any]) -> dict[str, Any]:
    """The options as the one function stored them."""
    outcome, content = options.get("outcome"), options.get("content", UNSET)
    not_before = options.get("not_before")
    record = {
        "stage": options.get("stage"),
        "as_new": options.get("as_new") or None,
        "outcome": None if outcome is None else outcome_to_builtins(outcome),
        "not_before": None if not_before is None else iso(old_start(not_before)),
        "content": None if content is UNSET else content_digest(content).hex(),
        "here": options.get("here") or None,
        "rerun": options.get("rerun") or None,
        "force": options.get("force") or None,
    }
    return {name: value for name, value in record.items() if value is not None}


def old_start(not_before: str) -> int:
    return moment_ms(not_before, WORLD.clock.now(), "not_before")


def old_decision(verb: str, item: Item, options: dict[str, Any]) -> Change | Refusal:
    """The decision of the one function, by the name of the verb."""
    plan, now = WORLD.plan, WORLD.clock.now()
    if verb == "replace":
        new = read_content(plan, options["content"])
        here, rerun = options.get("here", False), options.get("rerun", False)
        return replaced(WORLD.ctx, item, plan, new, here=here, rerun=rerun, dry_run=True, **AUTHOR)
    if verb == "confirm":
        stage = options.get("stage") or item.stage
        outcome: Outcome = options.get("outcome") or Done(True)
        jitter, force = SeededChance(1).jitter(), options.get("force", False)
        return confirmations.confirm(
            item, stage, outcome, plan, now, jitter, operator=True, force=force, **AUTHOR
        )
    arguments: dict[str, Any] = {}
    if verb in ("retry", "rerun"):
        arguments = {"stage": options.get("stage"), "as_new": options.get("as_new", False)}
    if verb == "reschedule":
        arguments = {"not_before": old_start(options["not_before"])}
    rule = getattr(operators, verb)
    decided: Change | Refusal = rule(item, plan, now, **arguments, **AUTHOR)
    return decided


def right_options(verb: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options that this verb takes."""
    taken = {name: OPTIONS[name] for name in VERB_CLASSES[verb].options}
    required = {
        name: taken.pop(name).filter(lambda value: value != "tomorrow")
        for name in ("content", "not_before")
        if name in taken
    }
    return st.fixed_dictionaries(required, optional=taken)


@pytest.mark.parametrize("verb", operators.VERBS)
@given(st.data())
def test_a_verb_records_and_decides_the_same(verb: str, data: st.DataObject) -> None:
    options = data.draw(right_options(verb))
    key = data.draw(st.sampled_from(KEYS))
    if verb == "replace":
        options["content"] = {"id": key, "n": data.draw(st.integers(1, 3))}
    items: dict[str, Any] = BY_QUERY if "pace" in options else {"keys": [key]}
    assume(not old_faults(verb, options, items))
    ctx, item = WORLD.ctx, WORLD.item(key)
    started = verb_of(verb, **options).started(ctx, WORLD.plan, None, ctx.clock.now())
    assert list(started.to_record().items()) == list(old_record(options).items())
    run = ActRun(ctx, WORLD.plan, AUTHOR, ActReport("act-1", verb, ROUTE, dry_run=True))
    ctx.chance = SeededChance(1)
    assert started.decide(item, run) == old_decision(verb, item, options)


@pytest.mark.parametrize("verb", [verb for verb in operators.VERBS if verb != "replace"])
@given(st.data())
def test_an_act_on_record_is_continued_with_the_same_verb(verb: str, data: st.DataObject) -> None:
    options = data.draw(right_options(verb))
    assume(not old_faults(verb, options, BY_QUERY))
    ctx, plan, now = WORLD.ctx, WORLD.plan, WORLD.clock.now()
    begun = verb_of(verb, **options).started(ctx, plan, None, now).to_record()
    assert recorded_verb(verb, begun).started(ctx, plan, None, now + 60_000).to_record() == begun


def test_the_verbs_have_their_names_in_the_core() -> None:
    assert tuple(VERB_CLASSES) == operators.VERBS


def test_an_unknown_option_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="no option speed"):
        verb_of("retry", speed=3)


def test_a_filter_without_a_status_means_the_same() -> None:
    meant = {
        verb.name: verb.default_statuses for verb in VERB_CLASSES.values() if verb.default_statuses
    }
    assert meant == {"cancel": LIVE, "rerun": frozenset({Status.COMPLETED})}
