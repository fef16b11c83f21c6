"""The journal: history lines by item, and one order over all of them."""
