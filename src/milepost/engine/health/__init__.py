"""Health: is everything well, and if not, what is wrong and what to do about it."""
