"""What runs an algorithm: cohorts, one round, and the one loop over rounds."""
