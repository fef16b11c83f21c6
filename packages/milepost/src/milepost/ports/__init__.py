"""Ports: the interfaces that the rules need: ledger, clock, runner, observer, subscriber, blob
store."""
