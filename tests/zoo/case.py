"""One model of the zoo, and the checks that every model has to pass."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import rankscope as rs


@dataclass(frozen=True)
class Case:
    """A tiny third-party model with random weights.

    build: makes the model; imports its library, so that a table can be read without it.
    example: makes inputs of the model.
    heads: number of verified heads in all attention modules together.
    wrong: some attention of this model has no heads that can be read; it must not be verified.
    """

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    heads: int
    wrong: bool = False


def check(case: Case) -> Counter[str]:
    """Check heads, matrices and products of a model; return the number of modules by status."""
    torch.manual_seed(0)
    model = case.build()
    verification = rs.verify(model, case.example())
    statuses = Counter(line.status for line in verification)
    verified = {line.name for line in verification if line.status == "verified"}
    attentions = rs.matrices.attentions(model)
    heads = sum(attentions[name].heads for name in verified)
    assert heads == case.heads, str(verification)
    if not case.wrong:
        assert set(statuses) <= {"verified"}, str(verification)
    assert statuses["assumed"] == 0, str(verification)
    check_matrices(model)
    check_products(model, like=rs.manifest(model).verified(verification))
    return statuses


def check_matrices(model: nn.Module) -> None:
    """Compare the singular values of every matrix with NumPy's."""
    for name, view in rs.views(model).items():
        expected = np.linalg.svd(view.W.detach().double().numpy(), compute_uv=False)
        got = rs.singular_values(view.W.double()).numpy()
        np.testing.assert_allclose(got, expected, atol=1e-9 * max(expected[0], 1e-30), err_msg=name)


def check_products(model: nn.Module, *, like: rs.Manifest) -> None:
    """Compare the singular values of every product with those of the dense product."""
    for name, product in rs.products(model, like=like).items():
        left, right = (side.detach().double() for side in (product.left, product.right))
        expected = np.linalg.svd((left @ right.mT).numpy(), compute_uv=False)
        got = rs.singular_values(rs.Product(left=left, right=right)).numpy()
        np.testing.assert_allclose(
            got, expected[: len(got)], atol=1e-9 * max(expected[0], 1e-30), err_msg=name
        )
