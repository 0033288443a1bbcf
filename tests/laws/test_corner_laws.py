"""Every penalty at its corners: derivatives at zeros and ties, numbers of any size and dtype."""

import pytest

from tests.laws.corner_laws import DERIVATIVE_LAWS, PRECISION_LAWS, SIZES
from tests.laws.penalty_laws import pairs
from tests.laws.test_calculus_laws import PENALTIES as CALCULUS
from tests.laws.test_penalty_laws import PENALTIES as VECTORS
from tests.laws.test_spectral_laws import PENALTIES as MATRICES

pytestmark = pytest.mark.slow

PENALTIES = VECTORS | CALCULUS | MATRICES


@pytest.mark.parametrize("law, name", pairs(DERIVATIVE_LAWS, PENALTIES))
def test_derivative_law(law, name):
    law(PENALTIES[name])


@pytest.mark.long
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("law, name", pairs(PRECISION_LAWS, PENALTIES))
def test_precision_law(law, name, dtype):
    law(PENALTIES[name], dtype)
