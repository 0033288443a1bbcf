"""A quick run of the study that a test module is named after."""

import pytest

from tests.experiments.studies.quick_studies import quick_study


@pytest.fixture(scope="module")
def found(request, tmp_path_factory):
    """Return the study, its quick config, the rows and the summary."""
    name = request.module.__name__.rpartition("test_")[2]
    return quick_study(name, tmp_path_factory.mktemp(name))
