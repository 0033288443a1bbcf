"""Penalties made from other penalties."""
