"""Figures, comparisons, metric files and the pages of results."""
