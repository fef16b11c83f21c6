"""The rules of the life of an item: pure functions on values. No I/O, no clock, no chance; nothing of ours is imported."""
