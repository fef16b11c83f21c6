"""Acts of operators and partners: on items, on stages, and on foreign rows."""
