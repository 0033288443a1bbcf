"""Studies of sites."""
