"""Rows of the SQLite file: codec, fence, and the statements that write many rows at once."""
