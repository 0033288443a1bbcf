"""Figures, metric files and the pages of results."""
