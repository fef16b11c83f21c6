"""Admission: which items may be worked on now, by pauses, rates, limits per lane, fair lanes and
circuit breakers. Pure rules."""
