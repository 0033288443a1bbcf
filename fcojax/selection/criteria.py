"""Information criteria: fit against the number of parameters, without holding anything out."""

import math
from typing import NamedTuple

import numpy as np


class Criterion(NamedTuple):
    r"""A price for every parameter: the score is :math:`D + c\,k`, and for EBIC a little more.

    D is twice minus the log-likelihood of all N examples: 2 N times the mean loss, or N times its
    logarithm for Gaussian noise whose variance is estimated. k counts the parameters that are not
    zero, p all of them.

    Attributes:
      name: what it is called.
      gaussian: whether the loss is a squared residual up to a factor, so that D is N log F.
      per_parameter: ``N -> c``.
      gamma: the weight of :math:`2 \log \binom{p}{k}`.

    Example:
      >>> import numpy as np
      >>> from fcojax.selection import bic
      >>> criterion = bic(gaussian=True)
      >>> criterion.name, criterion.gaussian
      ('BIC', True)
    """

    name: str
    gaussian: bool
    per_parameter: str
    gamma: float

    def scores(self, mean_loss: np.ndarray, nonzero: np.ndarray, num_examples: float, size: int):
        """The score of every model on a path."""
        fit = np.log(mean_loss) if self.gaussian else 2 * mean_loss
        price = 2.0 if self.per_parameter == "2" else math.log(num_examples)
        subsets = np.array([_log_choices(size, int(count)) for count in nonzero])
        return num_examples * fit + price * nonzero + 2 * self.gamma * subsets


def aic(*, gaussian: bool = False) -> Criterion:
    """Akaike's criterion: 2 for each parameter.

    Args:
      gaussian: say so if the loss is a squared residual; else it has to be minus the log-likelihood
        of an example, up to what does not depend on the parameters, as logistic and Poisson are.

    Example:
      >>> import numpy as np
      >>> from fcojax.selection import aic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([1, 3])
      >>> aic().scores(losses, nonzero, 100, 10).tolist()  # 2 * 100 * 0.5 + 2 * 1, and so on
      [102.0, 56.0]
    """
    return Criterion("AIC", gaussian, "2", 0.0)


def bic(*, gaussian: bool = False) -> Criterion:
    """Schwarz's criterion: log N for each parameter. See ``aic`` for the argument.

    Example:
      >>> import numpy as np
      >>> from fcojax.selection import bic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([1, 3])
      >>> bic().scores(losses, nonzero, 100, 10).round(1).tolist()  # log(100) is 4.6
      [104.6, 63.8]
    """
    return Criterion("BIC", gaussian, "log", 0.0)


def ebic(*, gaussian: bool = False, gamma: float = 1.0) -> Criterion:
    """BIC with a price for the choice of k parameters out of many.

    Example:
      >>> import numpy as np
      >>> from fcojax.selection import bic, ebic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([0, 1])
      >>> dearer = ebic().scores(losses, nonzero, 100, 10) - bic().scores(losses, nonzero, 100, 10)
      >>> dearer.round(1).tolist()  # 2 log(10) for one of ten
      [0.0, 4.6]

    References:
      Chen and Chen, "Extended Bayesian information criteria for model selection with large model
      spaces", Biometrika 2008.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is {gamma}; pass a number from 0 to 1.")
    return Criterion("EBIC", gaussian, "log", float(gamma))


def _log_choices(size: int, count: int) -> float:
    return math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)
