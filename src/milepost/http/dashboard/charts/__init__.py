"""Charts as SVG, from plain numbers."""
