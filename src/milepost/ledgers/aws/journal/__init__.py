"""The journal: history lines by item, and the order in which all of them were written."""
