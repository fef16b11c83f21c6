"""Commands that act on items and stages; each act is recorded with the operator's name and
reason."""
