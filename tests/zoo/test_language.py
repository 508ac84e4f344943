"""Models of transformers: verified heads, matrices as NumPy has them, products as dense ones."""

import pytest

from zoo.case import check
from zoo.language import FEW, MANY

pytestmark = pytest.mark.filterwarnings("ignore")  # those of a library concern its own authors


@pytest.mark.parametrize("name", FEW)
def test_a_dozen(name: str) -> None:
    check(FEW[name])


@pytest.mark.zoo
@pytest.mark.parametrize("name", MANY)
def test_many(name: str) -> None:
    check(MANY[name])
