-- Failed keys whose rows have left (MAX_RETRIES_EXCEEDED is 6, REJECTED 7) are found without reading all seals.
CREATE INDEX IF NOT EXISTS seal_failed ON seal (route, key) WHERE status IN (6, 7);
