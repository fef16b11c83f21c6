"""Stand-ins of the partners of postingest: `milepost-postingest[standins]`."""
