"""Commands that administer a ledger."""
