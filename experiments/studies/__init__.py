"""One package per experiment: its problem, rows, claims and figures."""
