"""The benchmark: Milepost beside the raw SQLite limit and DBOS Transact, and what it asks of AWS,
in one run. `python -m bench --help`."""
