"""OCFL: repository, storage layouts, objects and inventories."""
