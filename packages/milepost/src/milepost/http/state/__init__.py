"""State that all endpoints share: the ledger, thread pools, caches, shared submit batches and the
event stream."""
