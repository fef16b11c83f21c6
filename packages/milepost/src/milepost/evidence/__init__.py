"""Evidence for third parties: files of records, their signatures and views of them. Needs no
ledger."""
