"""Configs of the study of a user's file, and a matrix in compressed rows."""

import types

import scipy.sparse


def config_of(**values):
    defaults = {"features": "", "target": "y", "client": "site", "names": "", "missing": ""}
    defaults |= {"drop": (), "loss": "logistic", "by": "bic", "nonzeros": 0}
    return types.SimpleNamespace(**defaults | values)


def compressed(x, name="train"):
    rows = scipy.sparse.csr_array(x)
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape}
    return {f"{name}_{part}": array for part, array in parts.items()}
