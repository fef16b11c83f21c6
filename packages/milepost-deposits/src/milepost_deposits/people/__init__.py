"""The people's side of deposits: worklist of manual deposits, claims, and pages."""
