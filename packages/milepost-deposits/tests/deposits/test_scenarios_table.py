"""The scenarios of deposits by number, each with the tests that show it; a scenario without a test,
or with one that is gone, fails."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SCENARIOS: dict[int, tuple[str, ...]] = {
    # An empty ledger and a list with one DOI: submitted once, files at their places, list archived.
    1: (
        "test_rounds.py::test_a_new_doi_goes_through_all_stages_in_one_round",
        "fetch/test_metadata_stage.py::test_the_metadata_file_has_the_form_of_its_reader",
        "test_deposits_run.py::test_rounds_until_a_doi_needs_a_manual_deposit",
        "test_dss_submission.py::test_a_new_doi_is_handed_over_with_one_message",
        "test_dss_messages.py::test_the_message_is_the_one_that_the_service_reads",
    ),
    # A deposited DOI comes again in the master list.
    2: (
        "test_rounds.py::test_a_finished_doi_is_not_deposited_again",
        "test_dss_submission.py::test_what_is_done_or_handed_over_is_not_sent_again",
    ),
    # A DOI that is being submitted comes again in the list.
    3: (
        "test_rounds.py::test_a_doi_that_was_handed_over_is_not_sent_again",
        "test_dss_submission.py::test_what_is_done_or_handed_over_is_not_sent_again",
    ),
    # A DOI that has failed for good comes again in the list.
    4: (
        "test_rounds.py::test_a_pdf_that_never_comes_ends_at_the_threshold",
        "test_dss_submission.py::test_what_is_done_or_handed_over_is_not_sent_again",
    ),
    # No list, but a DOI to retry.
    5: (
        "test_rounds.py::test_a_failure_waits_for_the_next_round_and_keeps_its_attempts",
        "test_dss_submission.py::test_what_is_done_or_handed_over_is_not_sent_again",
    ),
    # Archived lists are not read; two lists share a DOI.
    6: (
        "test_intake.py::test_what_is_archived_or_in_quarantine_is_not_read",
        "test_intake.py::test_two_lists_that_share_a_doi_make_one_item",
    ),
    # Byte order mark and CRLF.
    7: ("test_intake.py::test_a_byte_order_mark_and_line_ends_of_windows_leave_no_trace",),
    # Header, blanks, spaces, URL and doi: forms, further columns.
    8: (
        "test_intake.py::test_every_form_of_a_doi_is_one_item_and_bad_lines_are_named",
        "test_doi.py::test_all_forms_of_a_doi_are_one",
    ),
    # Title and URL alone; the full record; joined titles and dates.
    9: ("fetch/test_metadata_map.py::test_title_and_url_alone_make_two_fields",),
    10: ("fetch/test_metadata_map.py::test_a_full_record_is_mapped_in_its_own_order",),
    11: (
        "fetch/test_metadata_map.py::test_the_parts_of_a_title_are_joined",
        "fetch/test_metadata_map.py::test_dates_have_the_parts_that_are_known",
    ),
    # Group authors, missing parts, empty titles: never "None".
    12: (
        "fetch/test_metadata_map.py::test_an_author_is_a_person_or_a_group_and_never_none",
        "fetch/test_metadata_map.py::test_any_record_is_mapped_without_fault_and_without_inventing_a_value",
        "fetch/test_metadata_map.py::test_a_record_without_title_or_url_is_insufficient",
    ),
    # A record without title or URL is a counted try.
    13: (
        "fetch/test_metadata_stage.py::test_a_record_that_does_not_suffice_is_a_counted_try",
        "fetch/test_metadata_stage.py::test_without_metadata_nothing_is_fetched_or_submitted",
    ),
    # A 404 in plain text stops no other DOI.
    14: ("fetch/test_metadata_stage.py::test_a_404_in_plain_text_stops_no_other_doi",),
    # HTML instead of a PDF; a content type with parameters; what else is no PDF.
    15: (
        "fetch/test_content_stage.py::test_whatever_is_no_pdf_is_a_counted_try",
        "fetch/test_content_stage.py::test_a_pdf_is_stored_with_its_size_and_checksums",
    ),
    16: ("fetch/test_content_stage.py::test_whatever_is_no_pdf_is_a_counted_try",),
    # Failures of metadata and content count towards the threshold.
    19: (
        "test_rounds.py::test_a_pdf_that_never_comes_ends_at_the_threshold",
        "test_rounds.py::test_each_stage_has_its_own_threshold",
    ),
    # A missing bucket, folder or ledger changes nothing, and the exit code says so.
    28: (
        "test_intake.py::test_a_missing_inbox_changes_nothing_and_says_so",
        "test_intake.py::test_a_ledger_that_is_not_available_leaves_the_list",
        "test_intake.py::test_lists_under_an_s3_prefix",
        "test_deposits_run.py::test_a_missing_inbox_is_said_and_does_not_stop_the_rest_of_the_round",
    ),
    # One error names all settings that are missing.
    29: (
        "test_deposits_settings.py::test_everything_that_is_missing_is_named_in_one_error",
        "test_deposits_run.py::test_everything_that_is_missing_is_said_before_any_partner_is_asked",
    ),
    # 20,000 known DOIs and 50 new ones.
    32: (
        "test_intake.py::test_a_known_master_list_costs_one_pass_and_writes_for_new_dois_alone",
        "test_intake.py::test_on_aws_known_dois_are_looked_up_in_batches_of_100",
    ),
    # Files of DOIs that read alike; lists of the same name.
    33: (
        "test_files.py::test_dois_that_read_alike_have_different_files",
        "test_files.py::test_every_name_is_valid_and_belongs_to_one_doi",
    ),
    34: ("test_intake.py::test_a_list_of_the_same_name_replaces_no_archive",),
    # A success result: deposited, its facts kept, the message gone.
    17: (
        "test_dss_submission.py::test_a_success_completes_the_doi_and_its_facts_are_kept",
        "test_dss_messages.py::test_a_success",
        "test_dss_messages.py::test_a_checksum_is_compared_with_the_pdf_that_was_sent",
        "test_dss_submission.py::test_another_file_in_dspace_needs_people",
    ),
    # Error results up to the threshold.
    18: ("test_dss_submission.py::test_error_results_are_counted_tries_until_the_threshold",),
    # Messages that are no results.
    20: (
        "test_dss_submission.py::test_a_message_that_is_no_result_is_set_aside_and_the_others_are_applied",
        "test_dss_submission.py::test_a_result_for_a_doi_that_is_not_ours_is_set_aside",
        "test_dss_messages.py::test_what_is_no_result_of_ours_is_said_with_the_reason",
    ),
    # A bare string, and a result type that does not exist.
    21: (
        "test_dss_submission.py::test_a_bare_string_is_a_counted_try",
        "test_dss_messages.py::test_a_bare_string_is_a_rejected_submission",
        "test_dss_submission.py::test_a_message_that_is_no_result_is_set_aside_and_the_others_are_applied",
    ),
    # The ledger cannot be written after a result was received.
    22: (
        "test_dss_submission.py::test_a_result_that_could_not_be_written_stays_in_the_queue",
        "test_dss_submission.py::test_a_message_whose_delete_failed_is_applied_once",
    ),
    # A process dies after sending.
    23: (
        "test_dss_submission.py::test_a_worker_that_dies_after_sending_sends_no_second_message",
        "test_dss_submission.py::test_a_worker_that_is_stopped_after_sending_sends_no_second_message",
    ),
    # A result is faster than the hand-over.
    24: ("test_dss_submission.py::test_a_result_that_is_faster_than_the_hand_over",),
    # Two workers and one DOI.
    25: ("test_dss_submission.py::test_two_workers_and_one_doi",),
    # Late and repeated results.
    26: (
        "test_dss_submission.py::test_a_late_error_after_a_success_changes_only_the_history",
        "test_dss_submission.py::test_an_error_that_comes_twice_counts_once",
        "test_dss_submission.py::test_an_error_of_an_earlier_message_is_not_taken_for_the_answer_to_the_last",
    ),
    # No result in time.
    27: (
        "test_dss_submission.py::test_no_result_in_time_is_reported_and_not_silently_sent_again",
        "test_dss_submission.py::test_a_service_that_makes_the_item_and_dies",
        "test_submission_record.py::test_whatever_the_times_nothing_is_sent_too_early",
    ),
    # Mails: a digest instead of the log as an attachment; a failure to mail loses nothing.
    30: (
        "digest/test_digests.py::test_after_each_run_one_mail_says_what_was_deposited_what_is_retried_and_what_needs_people",
        "digest/test_digests.py::test_a_mail_that_cannot_be_sent_is_kept_and_sent_later",
        "digest/test_digests.py::test_a_process_that_dies_before_it_moves_its_cursor_mails_nothing_twice",
        "runs/test_journal.py::test_a_mail_that_could_not_be_sent_goes_out_with_the_next_run",
    ),
    # Old and new forms of results.
    31: (
        "test_dss_submission.py::test_old_and_odd_forms_are_applied",
        "test_dss_messages.py::test_an_error_in_the_old_form",
        "test_dss_messages.py::test_an_error_in_todays_form",
        "test_dss_messages.py::test_a_success_with_a_bare_checksum_an_old_time_and_no_handle",
    ),
    # A service that never answers.
    35: ("test_dss_submission.py::test_a_service_that_never_answers",),
}


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_each_scenario_has_its_tests(scenario: int) -> None:
    assert SCENARIOS[scenario]
    for test in SCENARIOS[scenario]:
        file, _, name = test.partition("::")
        assert name in functions_of(file), f"scenario {scenario}: there is no test {test}"


def test_no_scenario_is_forgotten() -> None:
    assert SCENARIOS.keys() == set(range(1, 36))
