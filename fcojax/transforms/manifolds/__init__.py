"""Smooth constraint sets with projections, tangents and retractions."""
