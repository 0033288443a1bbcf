"""Rows on disk, and the summaries, claims, figures and pages made from them."""
