"""Contract of work: claims, fences, one step, concurrency."""
