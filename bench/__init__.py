"""The benchmark: Milepost beside the raw SQLite limit and DBOS Transact, in one run. `python -m bench --help`."""
