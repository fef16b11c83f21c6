"""Operating notifications: records, figures, senders, dead letters, destinations, for the API, the
pages and the commands."""
