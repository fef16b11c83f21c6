"""Places for blobs: larger pieces that are kept beside the ledger."""
