"""The people's side of deposits: worklist of manual deposits, claims, record of runs, and pages."""
