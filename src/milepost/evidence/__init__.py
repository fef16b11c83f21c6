"""Evidence for others: files of records, their signatures and views of them. Nothing here needs a ledger."""
