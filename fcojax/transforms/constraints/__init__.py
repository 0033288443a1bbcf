"""Constraint sets with a projection in closed form."""
