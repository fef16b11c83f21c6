"""What the rules need from the world: a ledger, a clock, somebody who runs things, a place for blobs."""
