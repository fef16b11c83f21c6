"""Runs: the record of each `milepost deposits run` from its start on, and what is known of one whose process died."""
