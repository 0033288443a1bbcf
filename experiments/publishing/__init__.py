"""Figures and the pages of results."""
