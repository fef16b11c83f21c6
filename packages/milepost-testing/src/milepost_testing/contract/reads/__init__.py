"""Contract of reads: find, counters, feed, hash chain."""
