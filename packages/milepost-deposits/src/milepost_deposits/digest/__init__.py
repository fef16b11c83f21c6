"""Digests: mails to librarians after each run, with what was deposited, what will be retried, and
what needs a manual deposit."""
