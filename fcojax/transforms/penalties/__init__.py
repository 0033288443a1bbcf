"""Functions with a prox: norms, sums over entries, signals and spectra."""
