"""Configs that `fcojax run` finds through the entry point `fcojax.configs`."""
