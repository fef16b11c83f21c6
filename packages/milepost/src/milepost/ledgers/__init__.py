"""The ledgers. Each is one implementation of `ports.ledger.Ledger`; none knows of another."""
