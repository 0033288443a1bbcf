"""Information criteria: fit against the number of parameters, without held-out data."""

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from fcojax.extend import validated
from fcojax.types import Count, Numbers, Positive

UpToOne = Annotated[
    Any, Numbers("a number from 0 to 1", lambda values: (values >= 0) & (values <= 1))
]


class Criterion(NamedTuple):
    r"""An information criterion: the score is :math:`D + c\,k`, and EBIC adds a term.

    D is twice the negative log-likelihood of all N examples: 2 N times the mean loss, or N times
    its logarithm for Gaussian noise whose variance is estimated. k is the number of nonzero
    parameters, p the number of all parameters.

    Attributes:
      name: the criterion's name.
      gaussian: whether the loss is a squared residual up to a factor, so that D is N log F.
      per_parameter: c, ``"2"`` or ``"log"`` for log N.
      gamma: the weight of :math:`2 \log \binom{p}{k}`.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites.selection import bic
      >>> criterion = bic(gaussian=True)
      >>> criterion.name, criterion.gaussian
      ('BIC', True)
    """

    name: str
    gaussian: bool
    per_parameter: Literal["2", "log"]
    gamma: float

    @validated
    def scores(
        self, mean_loss: np.ndarray, nonzero: np.ndarray, num_examples: Positive, size: Count
    ) -> np.ndarray:
        """Return the score of every model on a path.

        Args:
          mean_loss: [strengths], the mean loss of each model over all examples.
          nonzero: [strengths], the number of nonzero parameters of each model.
          num_examples: N.
          size: p, the number of parameters.
        """
        fit = np.log(mean_loss) if self.gaussian else 2 * mean_loss
        price = 2.0 if self.per_parameter == "2" else math.log(num_examples)
        subsets = np.array([_log_choices(size, int(count)) for count in nonzero])
        return num_examples * fit + price * nonzero + 2 * self.gamma * subsets


@validated
def aic(*, gaussian: bool = False) -> Criterion:
    """Akaike's criterion, with c = 2.

    Args:
      gaussian: pass true if the loss is a squared residual; any other loss has to be the negative
        log-likelihood of an example, up to a constant, as the logistic and Poisson losses are.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites.selection import aic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([1, 3])
      >>> aic().scores(losses, nonzero, 100, 10).tolist()  # 2 * 100 * 0.5 + 2 * 1, and so on
      [102.0, 56.0]
    """
    return Criterion("AIC", gaussian, "2", 0.0)


@validated
def bic(*, gaussian: bool = False) -> Criterion:
    """Schwarz's Bayesian criterion, with c = log N.

    Args:
      gaussian: pass true if the loss is a squared residual.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites.selection import bic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([1, 3])
      >>> bic().scores(losses, nonzero, 100, 10).round(1).tolist()  # log(100) is 4.6
      [104.6, 63.8]
    """
    return Criterion("BIC", gaussian, "log", 0.0)


@validated
def ebic(*, gaussian: bool = False, gamma: UpToOne = 1.0) -> Criterion:
    r"""BIC plus :math:`2 \gamma \log \binom{p}{k}` for the choice of k parameters out of p.

    Args:
      gaussian: pass true if the loss is a squared residual.
      gamma: the weight of the additional term; 0 is BIC.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites.selection import bic, ebic
      >>> losses, nonzero = np.array([0.5, 0.25]), np.array([0, 1])
      >>> extra = ebic().scores(losses, nonzero, 100, 10) - bic().scores(losses, nonzero, 100, 10)
      >>> extra.round(1).tolist()  # 2 log(10) for one of ten
      [0.0, 4.6]

    References:
      Chen and Chen, "Extended Bayesian information criteria for model selection with large model
      spaces", Biometrika 2008.
    """
    return Criterion("EBIC", gaussian, "log", float(gamma))


def _log_choices(size: int, count: int) -> float:
    return math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)
