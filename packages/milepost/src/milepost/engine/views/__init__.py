"""Read-only views of the ledger for people and programs: items, queries, snapshot, story."""
