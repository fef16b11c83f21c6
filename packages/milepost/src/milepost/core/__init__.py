"""The rules of an item's life: pure functions on values, without I/O, clock or randomness; imports
no other package of Milepost."""
