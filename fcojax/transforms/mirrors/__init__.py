"""Distance-generating functions with a composite mirror step."""
