"""Running the sweeps of an experiment."""
