"""The engine: intake, work, events, resending, operator acts and views. It decides with `core` and
reads and writes through `ports`."""
