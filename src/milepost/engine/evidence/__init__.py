"""Evidence from the ledger: records of items, restored rows, and files by storage volume."""
