"""How fast it is, beside the plain way of doing the same."""
