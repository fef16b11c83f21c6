"""Acts of operators and partners: on items, on stages, and on rows that other programs wrote."""
