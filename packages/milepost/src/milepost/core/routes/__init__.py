"""Routes as users write them: stages, keys, backoff; and the plan that a ledger uses."""
