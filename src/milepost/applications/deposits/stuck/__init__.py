"""Deposits whose submission has no known result: the stuck report, and a search for those that have failed."""
