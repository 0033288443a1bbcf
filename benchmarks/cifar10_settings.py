"""Two published settings of CIFAR-10, and random images of its shape; in numpy, for both sides."""

from typing import NamedTuple

import numpy as np

NUM_CLASSES, SHAPE = 10, (32, 32)
Images = tuple[np.ndarray, np.ndarray]


class Setting(NamedTuple):
    """The sizes of a setting.

    Attributes:
      num_clients: number of clients.
      num_rows: images of each client.
      cohort_size: clients in each round.
      num_epochs: local epochs.
      batch_size: images in a step.
      num_rounds: number of rounds.
      network: ``"emnist_net"``, with dropout, or ``"lenet"``.
      client_lr: the rate of the local steps.
    """

    num_clients: int
    num_rows: int
    cohort_size: int
    num_epochs: int
    batch_size: int
    num_rounds: int
    network: str
    client_lr: float = 0.1


SETTINGS = {
    "pfl": Setting(1000, 50, 50, 1, 10, 1500, "emnist_net"),
    "blazefl": Setting(100, 500, 100, 5, 50, 5, "lenet"),
    # Small enough for a test.
    "toy": Setting(4, 10, 2, 1, 5, 2, "lenet"),
}


def drawn(num_rows: int, seed: int) -> Images:
    """Return random images, [rows, 32, 32, 3] from 0 to 255, and labels."""
    rng = np.random.default_rng(seed)
    images = 255 * rng.random((num_rows, *SHAPE, 3), dtype=np.float32)
    return images, rng.integers(0, NUM_CLASSES, num_rows, dtype=np.int32)


def scaled(images: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return images whose channels have mean 0 and variance 1 on the images ``like``."""
    return (images - like.mean((0, 1, 2))) / like.std((0, 1, 2))
