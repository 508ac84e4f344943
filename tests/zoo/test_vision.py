"""Vision and diffusion models of other libraries: heads, matrices and products."""

import pytest

from zoo.case import check
from zoo.vision import EVERYTHING

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_model(name: str) -> None:
    check(EVERYTHING[name])
