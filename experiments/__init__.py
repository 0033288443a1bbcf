"""The launcher: runs experiments from config files and writes rows, figures and models."""

import os

# Figures go to files, whatever backend the user has set; an unknown one would fail at import.
os.environ["MPLBACKEND"] = "Agg"
# XLA calls LAPACK from its own threads. With BLAS threads in addition, singular value
# decompositions in a loop took 10 to 20 times longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
