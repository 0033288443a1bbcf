"""Results that FLamby's repository reports, at owkin/FLamby's commit edacf54.

Each strategy has the plain mean over the silos' test sets and the score on all test rows, both
averaged over five seeds.
"""

TABLES: dict[str, list[tuple[str, float, float]]] = {
    "fed_tcga_brca": [
        ("FedAdam and FedYogi", 0.815, 0.842),
        ("FedAdagrad", 0.813, 0.834),
        ("silo 1 alone", 0.750, 0.728),
        ("FedAvg", 0.732, 0.735),
        ("FedProx", 0.729, 0.717),
        ("silo 0 alone", 0.728, 0.695),
        ("silo 4 alone", 0.712, 0.725),
        ("silo 5 alone", 0.691, 0.710),
        ("SCAFFOLD", 0.687, 0.700),
        ("pooled training", 0.676, 0.704),
        ("cyclic", 0.658, 0.661),
        ("silo 3 alone", 0.656, 0.565),
        ("silo 2 alone", 0.498, 0.604),
    ],
    "fed_heart_disease": [
        ("pooled training", 0.735, 0.795),
        ("FedAdagrad and FedYogi", 0.731, 0.779),
        ("FedAdam", 0.726, 0.779),
        ("silo 0 alone", 0.722, 0.784),
        ("cyclic", 0.718, 0.785),
        ("FedAvg, FedProx and SCAFFOLD", 0.685, 0.748),
        ("silo 3 alone", 0.637, 0.611),
        ("silo 1 alone", 0.629, 0.727),
        ("silo 2 alone", 0.567, 0.483),
    ],
}


def best(dataset: str) -> float:
    """Return the best strategy's mean over the silos.

    Example:
      >>> best("fed_tcga_brca")
      0.815
    """
    return max(clients for _, clients, _ in TABLES[dataset])
