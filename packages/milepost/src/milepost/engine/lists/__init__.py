"""Lists: delivered files of items, read in constant memory and reconciled with the ledger."""
