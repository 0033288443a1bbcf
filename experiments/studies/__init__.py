"""One package per experiment: its problem, what it claims and what it draws."""
