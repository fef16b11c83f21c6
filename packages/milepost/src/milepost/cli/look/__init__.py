"""Commands that read the ledger and change nothing."""
