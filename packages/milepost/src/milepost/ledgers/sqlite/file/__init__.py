"""The SQLite file: connections, schema and migrations, process liveness, backup."""
