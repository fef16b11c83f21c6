"""The scenario list for this system, and where each of its 35 is shown: on the ledgers inside one
process, on AWS, or by parts that know of no ledger at all."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from tests.project import path_of_tests

HERE = "postingest"
PUT, CONFIRMED, OUT_OF_TURN, TROUBLE, LEAVING, RESENDER, DIALECTS, JOURNEYS, SEQUENCE = (
    f"{HERE}/scenarios/test_aws_{name}.py"
    for name in (
        "rows_put",
        "confirmations",
        "out_of_turn",
        "failures",
        "retention",
        "resender",
        "dialects",
        "confirmers",
        "sequence",
    )
)
TOPIC = "aws/test_topic.py"
EMBEDDED, SEQUENCE_HERE = (
    f"{HERE}/scenarios/test_{name}.py" for name in ("in_process", "sequence")
)
CONFIRMER, THROUGH = (f"{HERE}/confirmer/test_{name}.py" for name in ("confirmer", "assets_on_aws"))
TOLD, QUEUES, COPY, TAPE = (
    f"{HERE}/test_{name}.py" for name in ("events", "queues", "custodial_copy", "tape")
)
SCOUTAM = f"{HERE}/scoutam/test_api.py"
RESEND = "engine/test_resend.py"

NO_STREAM = "Row and consequences are one transaction: there is no stream of images, and nobody else writes rows."
JOURNEY = "test_an_asset_goes_from_the_repository_to_tape_and_is_told_of_three_times"
WHATEVER = "test_update_update_complete_whatever_happens"

Where = dict[str, list[str]]
"""Tests by file."""

SHOWN: dict[int, dict[str, Where | str]] = {
    1: {
        "embedded": {
            EMBEDDED: ["test_a_new_asset_is_offered_once_and_told_once"],
            TOLD: ["test_the_documents_three_messages_to_the_letter"],
        },
        "aws": {
            PUT: [
                "test_a_row_that_a_step_function_puts_is_adopted_and_offered_once",
                "test_a_stage_is_offered_at_its_own_queue",
            ],
            DIALECTS: ["test_a_new_row_is_queued_offered_and_told_to_the_letter"],
        },
    },
    2: {
        "embedded": {EMBEDDED: ["test_a_new_asset_is_offered_once_and_told_once"]},
        "aws": {
            PUT: ["test_json_is_passed_on_as_json_and_other_text_as_text"],
            DIALECTS: ["test_text_that_is_no_json_is_sent_as_text"],
        },
    },
    3: {
        "embedded": {TOLD: ["test_todays_messages_to_the_letter"]},
        "aws": {
            PUT: ["test_a_correlation_id_on_the_row_is_told_in_everything"],
            DIALECTS: ["test_a_new_row_is_queued_offered_and_told_to_the_letter"],
        },
    },
    4: {
        "embedded": {EMBEDDED: ["test_the_result_of_a_stage_is_what_the_next_is_given"]},
        "aws": {
            CONFIRMED: [
                "test_a_confirmation_moves_the_asset_to_the_next_stage_with_the_result_as_its_payload",
                "test_a_confirmer_that_rewrites_the_input_says_what_the_next_stage_is_given",
            ],
            DIALECTS: [
                "test_from_end_to_end_to_the_letter",
                "test_the_other_dialects_attribute_confirms_nothing",
            ],
        },
    },
    5: {
        "embedded": {
            EMBEDDED: ["test_the_result_of_a_stage_is_what_the_next_is_given"],
            TOLD: ["test_todays_messages_to_the_letter"],
        },
        "aws": {
            CONFIRMED: ["test_the_last_confirmation_ends_the_asset_and_leaves_the_others_alone"],
            DIALECTS: ["test_from_end_to_end_to_the_letter"],
        },
    },
    6: {
        "embedded": {TOLD: ["test_a_route_of_one_stage_completes_with_that_stages_own_text"]},
        "aws": {DIALECTS: ["test_a_route_of_one_stage_says_its_own_words_at_the_end"]},
    },
    7: {"embedded": NO_STREAM, "aws": {PUT: ["test_the_relays_own_writes_lead_to_nothing"]}},
    8: {
        "embedded": {
            EMBEDDED: ["test_a_confirmation_for_a_later_stage_is_kept_and_told_of_in_order"]
        },
        "aws": {
            OUT_OF_TURN: [
                "test_a_confirmation_for_a_later_stage_is_kept_until_the_asset_gets_there"
            ],
            DIALECTS: ["test_an_early_confirmation_is_told_of_in_the_routes_order"],
        },
    },
    9: {
        "embedded": NO_STREAM,
        "aws": {TROUBLE: ["test_a_change_record_without_one_of_its_images_hinders_only_itself"]},
    },
    10: {
        "embedded": NO_STREAM,
        "aws": {TROUBLE: ["test_a_deletion_among_other_changes_hinders_none_of_them"]},
    },
    11: {
        "anywhere": {
            QUEUES: [
                "test_each_mistake_has_its_own_sentence",
                "test_a_file_that_is_not_there_is_named",
            ]
        }
    },
    12: {
        "embedded": NO_STREAM,
        "aws": {
            PUT: [
                "test_a_row_that_is_gone_before_its_record_is_read_is_not_made_again",
                "test_a_row_that_goes_while_it_is_being_adopted_is_not_made_again",
            ],
            TROUBLE: ["test_a_row_born_with_a_confirmation_is_set_aside"],
        },
    },
    13: {
        "embedded": {
            EMBEDDED: [
                "test_one_malformed_asset_among_a_hundred_hinders_no_other_and_nobody_is_told_twice"
            ]
        },
        "aws": {
            TROUBLE: ["test_one_malformed_record_among_a_hundred_is_set_aside_with_its_content"],
            SEQUENCE: [WHATEVER],
        },
    },
    14: {
        "embedded": {
            EMBEDDED: ["test_what_nobody_takes_is_told_later_once_and_in_order"],
            SEQUENCE_HERE: [WHATEVER],
        },
        "aws": {
            TROUBLE: [
                "test_a_message_that_cannot_be_sent_is_sent_when_the_record_comes_again",
                "test_a_write_that_fails_after_the_send_only_sends_twice",
            ],
            DIALECTS: ["test_a_notification_sent_again_after_a_lost_answer_has_the_same_id"],
            SEQUENCE: [WHATEVER],
        },
    },
    15: {
        "embedded": {EMBEDDED: ["test_what_nobody_takes_is_told_later_once_and_in_order"]},
        "aws": {
            LEAVING: ["test_an_event_that_could_not_be_told_is_told_after_its_row_has_left"],
            TOPIC: ["test_each_entry_is_answered_for_by_itself"],
        },
    },
    16: {
        "embedded": {
            EMBEDDED: ["test_what_says_no_confirms_nothing"],
            TOLD: ["test_a_part_of_the_files_on_tape_confirms_nothing"],
        },
        "aws": {
            CONFIRMED: [
                "test_all_values_that_say_no_confirm_nothing",
                "test_a_confirmation_set_and_taken_off_before_it_is_read_confirms_nothing",
                "test_taking_off_what_confirmed_nothing_confirms_nothing",
            ],
            DIALECTS: ["test_today_nothing_less_than_a_whole_result_confirms"],
        },
    },
    17: {
        "embedded": {
            EMBEDDED: ["test_an_asset_put_again_at_any_stage_stays_where_it_is"],
            TOLD: ["test_what_is_put_again_is_known_and_what_differs_is_told_apart"],
        },
        "aws": {
            PUT: [
                "test_a_row_put_again_goes_on_from_where_it_was",
                "test_a_row_put_again_and_confirmed_before_that_is_read_goes_on",
                "test_an_asset_put_again_after_its_row_has_left_is_known_by_its_seal",
            ],
            SEQUENCE: [WHATEVER],
        },
    },
    18: {
        "embedded": {
            COPY: ["test_on_a_route_one_asset_arrives_and_another_waits_until_it_is_there"]
        },
        "aws": {
            CONFIRMER: ["test_18_what_is_in_the_repository_is_confirmed_and_what_is_not_is_left"]
        },
    },
    19: {
        "anywhere": {COPY: ["test_a_staged_asset_is_confirmed_once_it_is_committed"]},
        "aws": {CONFIRMER: ["test_19_staged_changes_are_not_confirmed_before_they_are_committed"]},
    },
    20: {
        "embedded": NO_STREAM,
        "aws": {CONFIRMER: ["test_20_a_row_that_is_gone_is_not_made_again_and_its_message_goes"]},
    },
    21: {
        "embedded": {COPY: ["test_on_a_route_a_repository_that_is_away_uses_up_no_tries"]},
        "aws": {
            CONFIRMER: [
                "test_21_a_message_is_not_deleted_when_its_update_or_deletion_fails",
                "test_21_a_queue_that_cannot_be_asked_is_asked_again_in_the_next_turn",
            ]
        },
    },
    22: {
        "embedded": "The row is the queue: workers take what is due, as many as the stage's concurrency and rate allow.",
        "aws": {
            CONFIRMER: [
                "test_22_a_turn_takes_exactly_as_many_as_it_may",
                "test_22_it_is_fifty_unless_something_else_is_said",
            ]
        },
    },
    23: {
        "anywhere": {
            COPY: ["test_a_payload_that_names_no_asset_is_rejected"],
            TAPE: ["test_a_payload_of_another_kind_is_rejected_and_nobody_is_asked"],
        },
        "aws": {CONFIRMER: ["test_23_a_payload_of_another_kind_goes_to_the_quarantine"]},
    },
    24: {
        "anywhere": {
            TAPE: [
                "test_all_files_on_tape_are_confirmed_with_their_volumes",
                "test_a_file_that_is_not_archived_whole_is_not_on_tape",
                "test_a_wrong_mount_root_is_told_with_what_is_set",
            ]
        },
        "aws": {CONFIRMER: ["test_24_files_on_tape_are_confirmed_with_their_volumes"]},
    },
    25: {
        "anywhere": {TAPE: ["test_one_of_two_files_is_not_enough"]},
        "embedded": {
            TOLD: ["test_a_part_of_the_files_on_tape_confirms_nothing"],
            TAPE: ["test_through_a_week_of_outage_and_piece_by_piece_an_asset_gets_to_its_end"],
        },
        "aws": {
            CONFIRMER: ["test_25_one_of_two_files_on_tape_confirms_nothing"],
            DIALECTS: ["test_today_nothing_less_than_a_whole_result_confirms"],
        },
    },
    26: {
        "anywhere": {
            SCOUTAM: [
                "test_a_login_that_is_refused_is_told_and_not_repeated_for_a_minute",
                "test_a_login_answer_that_cannot_be_read_is_told_without_its_content",
                "test_an_answer_that_does_not_come_whole_in_time_is_unavailable",
            ],
            TAPE: ["test_an_outage_is_waited_for_and_not_counted"],
        },
        "aws": {
            CONFIRMER: [
                "test_26_a_tape_library_that_lets_nobody_in_is_told_with_every_turn_and_without_the_password"
            ]
        },
    },
    27: {
        "embedded": {EMBEDDED: ["test_to_the_millisecond"]},
        "aws": {
            RESENDER: [
                "test_what_has_been_in_its_queue_for_as_long_as_that_keeps_it_is_sent_again",
                "test_to_the_millisecond",
            ],
            DIALECTS: ["test_what_is_sent_again_is_the_same_to_the_letter_and_nobody_is_told"],
        },
    },
    28: {
        "embedded": {EMBEDDED: ["test_the_documents_example_of_a_resend"]},
        "aws": {DIALECTS: ["test_the_documents_example_at_every_stage"]},
    },
    29: {
        "embedded": {EMBEDDED: ["test_the_documents_example_of_a_resend"]},
        "aws": {
            RESENDER: [
                "test_rows_of_another_stage_are_never_touched",
                "test_what_aws_refuses_is_told_and_done_by_the_next_run",
                "test_a_queue_that_cannot_be_asked_is_told",
            ]
        },
    },
    30: {
        "embedded": {EMBEDDED: ["test_the_documents_example_of_a_resend"]},
        "aws": {
            RESENDER: ["test_a_resend_for_the_second_stage_has_the_second_stages_payload"],
            DIALECTS: ["test_what_is_sent_again_is_the_same_to_the_letter_and_nobody_is_told"],
        },
    },
    31: {
        "embedded": {
            RESEND: [
                "test_two_at_once_send_each_item_once",
                "test_bounded_and_goes_on_past_what_it_cannot_move",
            ]
        },
        "aws": {
            RESENDER: [
                "test_a_row_that_goes_between_the_look_and_the_write_is_not_made_again",
                "test_one_bad_row_keeps_no_other_from_being_sent_again",
            ]
        },
    },
    32: {
        "embedded": {EMBEDDED: [JOURNEY]},
        "aws": {
            JOURNEYS: [JOURNEY],
            THROUGH: ["test_32_an_asset_whose_paths_fit_into_no_message_passes_both"],
        },
    },
    33: {
        "embedded": {EMBEDDED: [JOURNEY]},
        "aws": {
            JOURNEYS: [JOURNEY],
            PUT: ["test_other_alphabets_survive_every_hop"],
            CONFIRMER: ["test_33_names_stay_as_they_are_to_the_letter_through_both_confirmers"],
        },
    },
    34: {
        "embedded": {
            EMBEDDED: ["test_an_asset_at_a_stage_that_the_configuration_has_not_got_is_reported"]
        },
        "aws": {RESENDER: ["test_rows_at_a_stage_that_the_route_has_not_got_any_more_are_told_of"]},
    },
    35: {
        "embedded": {
            EMBEDDED: [JOURNEY],
            TOLD: ["test_the_documents_three_messages_to_the_letter"],
            SEQUENCE_HERE: [WHATEVER],
        },
        "aws": {
            DIALECTS: ["test_from_end_to_end_to_the_letter"],
            JOURNEYS: [JOURNEY],
            THROUGH: ["test_35_two_confirmers_in_processes_of_their_own_and_three_notifications"],
            SEQUENCE: [WHATEVER],
        },
    },
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse(path_of_tests(file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_scenario_is_shown_somewhere() -> None:
    assert list(SHOWN) == list(range(1, 36))


@pytest.mark.parametrize("number", SHOWN)
def test_a_scenario_is_shown_on_both_kinds_of_ledger_by_tests_that_exist(number: int) -> None:
    places = SHOWN[number]
    assert "anywhere" in places or {"embedded", "aws"} <= places.keys(), (
        "or say why it does not apply there"
    )
    for where in places.values():
        if isinstance(where, str):
            continue
        assert where
        for file, names in where.items():
            missing = set(names) - names_in(file)
            assert not missing, f"{file} has no {', '.join(sorted(missing))}"
