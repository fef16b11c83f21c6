"""The 35 scenarios of notification delivery, and the tests that show each of them."""

from __future__ import annotations

import ast

import pytest
from tests.project import path_of_tests

HERE = "notifications"

SCENARIOS: dict[int, tuple[str, list[str]]] = {
    1: (
        "accept",
        [
            f"{HERE}/test_accept.py::test_s01_a_valid_message_is_accepted_and_its_exact_bytes_are_delivered"
        ],
    ),
    2: (
        "missing field",
        [
            f"{HERE}/test_accept.py::test_s02_a_missing_field_is_named_and_nothing_is_stored",
            f"{HERE}/test_accept.py::test_s02_the_first_missing_field_wins_and_missing_ones_win_over_wrong_ones",
        ],
    ),
    3: (
        "bad JSON",
        [f"{HERE}/test_accept.py::test_s03_bad_json_and_json_that_is_no_object_are_refused"],
    ),
    4: (
        "timestamps",
        [
            f"{HERE}/test_accept.py::test_s04_timestamps_with_offsets_and_fractions_are_normalised",
            f"{HERE}/test_accept.py::test_s04_other_timestamps_are_refused",
        ],
    ),
    5: ("URL", [f"{HERE}/test_accept.py::test_s05_only_http_urls_with_a_host_are_targets"]),
    6: (
        "headers",
        [
            f"{HERE}/test_accept.py::test_s06_wrong_headers_are_refused_with_field_and_rule",
            f"{HERE}/test_accept.py::test_s06_names_that_differ_in_case_are_one_header",
            f"{HERE}/test_accept.py::test_s06_headers_that_each_delivery_sets_cannot_be_given",
        ],
    ),
    7: (
        "size edge",
        [
            f"{HERE}/test_accept.py::test_s07_262144_bytes_are_accepted_and_one_more_is_413_counted_in_bytes"
        ],
    ),
    8: (
        "duplicate",
        [
            f"{HERE}/test_accept.py::test_s08_a_message_that_comes_again_is_a_duplicate_with_its_status"
        ],
    ),
    9: (
        "race",
        [f"{HERE}/test_accept.py::test_s09_fifty_at_once_make_one_record_and_one_delivery"],
    ),
    10: (
        "conflict",
        [
            f"{HERE}/test_accept.py::test_s10_the_same_key_with_another_request_is_a_conflict_and_the_first_is_delivered"
        ],
    ),
    11: ("key ambiguity", [f"{HERE}/test_accept.py::test_s11_parts_of_the_key_are_escaped"]),
    12: (
        "store down",
        [
            f"{HERE}/test_accept.py::test_s12_a_store_that_is_down_fails_closed_and_a_later_retry_is_new"
        ],
    ),
    13: (
        "crash after store, before enqueue",
        [
            f"{HERE}/test_nothing_lost.py::test_s13_a_process_that_ends_after_the_store_loses_nothing",
            f"{HERE}/test_on_aws.py::test_s13_a_message_that_was_stored_and_not_queued_goes_out",
        ],
    ),
    14: (
        "worker faster than API",
        [
            f"{HERE}/test_nothing_lost.py::test_s14_a_worker_that_is_faster_than_the_answer",
            f"{HERE}/test_on_aws.py::test_s14_a_worker_that_is_faster_than_the_answer",
        ],
    ),
    15: (
        "crash mid-delivery",
        [
            f"{HERE}/test_crashes.py::test_s15_a_worker_that_is_killed_before_the_request_leaves_one_request",
            f"{HERE}/test_crashes.py::test_s15_a_worker_that_is_killed_after_the_request_sends_the_same_id_again",
        ],
    ),
    16: (
        "lost lease",
        [f"{HERE}/test_crashes.py::test_s16_an_outcome_that_comes_after_its_lease_is_refused"],
    ),
    17: ("retry ladder", [f"{HERE}/test_retries.py::test_s17_the_retry_ladder"]),
    18: (
        "exhaustion",
        [
            f"{HERE}/test_retries.py::test_s18_three_tries_and_never_a_fourth",
            f"{HERE}/test_alerts.py::test_s18_dead_letters_are_one_alert_for_each_cause_and_destination_and_one_when_it_is_over",
        ],
    ),
    19: (
        "permanent",
        [
            f"{HERE}/test_retries.py::test_s19_a_permanent_refusal_is_sent_once",
            f"{HERE}/test_retries.py::test_s19_410_also_pauses_the_url_and_keeps_its_backlog",
            f"{HERE}/test_alerts.py::test_s19_a_url_that_answers_410_is_one_alert",
        ],
    ),
    20: ("transient 4xx", [f"{HERE}/test_retries.py::test_s20_a_transient_refusal_is_sent_again"]),
    21: (
        "Retry-After",
        [
            f"{HERE}/test_retries.py::test_s21_retry_after_is_a_floor",
            f"{HERE}/test_retries.py::test_s21_dates_caps_and_garbage_in_retry_after",
        ],
    ),
    22: (
        "network errors",
        [
            f"{HERE}/test_network_errors.py::test_s22_a_partner_that_fails_after_the_request_has_its_own_category_and_is_tried_again",
            f"{HERE}/test_network_errors.py::test_s22_a_refused_connection_and_an_unknown_name_are_tried_again_and_nothing_was_sent",
            f"{HERE}/test_network_errors.py::test_s22_a_certificate_that_is_not_trusted",
        ],
    ),
    23: (
        "redirect",
        [
            f"{HERE}/test_network_errors.py::test_s23_a_redirect_is_not_followed",
            f"{HERE}/test_network_errors.py::test_s23_a_redirect_that_is_allowed_passes_the_guard_too",
        ],
    ),
    24: (
        "SSRF",
        [
            f"{HERE}/test_network_errors.py::test_s24_addresses_that_are_not_public_are_refused",
            f"{HERE}/test_network_errors.py::test_s24_addresses_in_other_spellings_are_refused_at_once",
            f"{HERE}/test_network_errors.py::test_s24_a_name_is_looked_up_and_vetted_on_every_retry",
            f"{HERE}/test_network_errors.py::test_s24_a_network_that_is_allowed_can_be_called",
        ],
    ),
    25: (
        "backoff properties",
        [
            "core/routes/test_backoff.py::test_a_delay_is_never_above_the_cap_nor_below_the_first_delay",
            "core/routes/test_backoff.py::test_delays_of_every_number_of_failures_span_their_range_and_a_seed_repeats_them",
            f"{HERE}/test_retries.py::test_s25_the_settings_of_the_seed_make_its_schedule_and_a_seed_repeats_it",
        ],
    ),
    26: (
        "breaker",
        [
            f"{HERE}/test_isolation.py::test_s26_a_breaker_postpones_without_attempts_probes_once_and_drains",
            f"{HERE}/test_destination_api.py::test_s26_an_open_breaker_is_shown_and_its_messages_wait_uncounted",
        ],
    ),
    27: (
        "isolation and rate",
        [
            f"{HERE}/test_isolation.py::test_s27_a_partner_that_hangs_slows_no_other",
            f"{HERE}/test_isolation.py::test_s27_a_rate_is_kept_and_uses_up_no_attempts",
        ],
    ),
    28: (
        "large payload after long delay",
        [
            f"{HERE}/test_nothing_lost.py::test_s28_a_large_body_is_delivered_whole_five_hours_later",
            f"{HERE}/test_on_aws.py::test_s28_a_large_body_is_kept_apart_delivered_whole_and_removed_with_its_row",
            f"{HERE}/test_on_aws.py::test_s28_a_body_that_is_missing_or_damaged_is_a_dead_letter_with_that_reason",
        ],
    ),
    29: (
        "replay",
        [
            f"{HERE}/test_message_api.py::test_s29_dead_letters_are_replayed_in_bulk_after_a_preview_and_not_twice",
            f"{HERE}/test_message_api.py::test_s29_a_paced_replay_is_sent_no_faster",
        ],
    ),
    30: (
        "poison input",
        [
            f"{HERE}/test_on_aws.py::test_s30_an_unreadable_message_is_set_aside_and_its_neighbours_are_delivered"
        ],
    ),
    31: (
        "signature",
        [
            f"{HERE}/test_signatures.py::test_s31_the_known_answer_of_the_specification",
            f"{HERE}/test_signatures.py::test_s31_each_try_has_the_same_id_a_fresh_time_and_a_valid_signature",
            f"{HERE}/test_signatures.py::test_s31_during_a_rotation_both_secrets_sign",
        ],
    ),
    32: (
        "correlation",
        [
            f"{HERE}/test_nothing_lost.py::test_s32_one_correlation_id_everywhere_and_no_secret_anywhere",
            f"{HERE}/test_message_client.py::test_s32_one_correlation_id_from_the_client_to_the_partner_and_the_dead_letter",
        ],
    ),
    33: (
        "health",
        [
            f"{HERE}/test_service_health.py::test_s33_a_ledger_that_is_down_is_named_and_the_server_is_alive",
            f"{HERE}/test_service_health.py::test_s33_it_answers_within_its_limit_though_the_ledger_hangs",
        ],
    ),
    34: (
        "metrics per sender",
        [
            f"{HERE}/test_figures.py::test_s34_the_figures_of_a_sender_are_exact",
            f"{HERE}/test_figures.py::test_s34_the_age_of_the_oldest_due_message_is_a_metric",
            f"{HERE}/test_figures.py::test_s34_the_sets_of_names_are_bounded_and_nothing_is_lost",
        ],
    ),
    35: (
        "chaos soak",
        [
            f"{HERE}/test_soak.py::test_s35_chaos_on_sqlite_with_workers_that_are_killed",
            f"{HERE}/test_soak.py::test_s35_chaos_on_aws_with_workers_that_are_killed_and_calls_that_fail",
        ],
    ),
}
"""By number: the scenario's name and its tests (file and function)."""


def test_every_scenario_has_its_tests() -> None:
    assert SCENARIOS.keys() == set(range(1, 36))


@pytest.mark.parametrize("number", sorted(SCENARIOS))
def test_the_tests_of_a_scenario_are_there(number: int) -> None:
    for test in SCENARIOS[number][1]:
        file, _, function = test.partition("::")
        functions = {
            node.name
            for node in ast.parse(path_of_tests(file).read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert function in functions, test
