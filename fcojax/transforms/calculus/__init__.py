"""New penalties from old ones."""
