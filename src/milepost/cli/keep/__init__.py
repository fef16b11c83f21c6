"""Commands that keep a ledger in order."""
