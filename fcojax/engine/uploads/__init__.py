"""Which uploads count in the mean, and how they are encoded."""
