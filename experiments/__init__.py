"""The launcher: runs experiments from config files and leaves rows, figures and models behind."""

import os

# Figures go to files, whatever a terminal's own backend is; an unknown one fails at import.
os.environ["MPLBACKEND"] = "Agg"
# XLA calls LAPACK from threads of its own. With threads of BLAS on top, singular value
# decompositions in a loop took 10 to 20 times longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
