"""Daily heads: one digest a day over all history, and proofs that a head covers a record."""
