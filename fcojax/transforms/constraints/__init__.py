"""Sets with a projection."""
