"""The only loop: cohorts, one round, rounds in blocks. It has never heard an algorithm's name."""
