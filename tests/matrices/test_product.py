"""Products as factors, and changes of products."""

import torch

from rankscope.matrices import Product, ProductReading, Reading, product_change


def test_the_change_survives_where_the_difference_of_products_rounds_away() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right, step = (
        torch.randn(5, 2, dtype=torch.float64, generator=generator) for _ in range(3)
    )
    before, now = Product(left, right), Product(left + 1e-12 * step, right)
    change = product_change(now, before)
    actual = (now.left - left) @ right.mT  # exact: only the left factor moved
    torch.testing.assert_close(change.left @ change.right.mT, actual, rtol=1e-12, atol=1e-26)
    assert change.shape == (5, 5) and change.left.shape[-1] == 4


def test_a_product_reading_scales_the_matrix_once() -> None:
    up, down = torch.randn(5, 2), torch.randn(2, 3)
    left = Reading("b", "b", "lora", (("out", 5), ("rank", 2)), ("out",), ("rank",))
    right = Reading("a", "a", "lora", (("rank", 2), ("in", 3)), ("in",), ("rank",))
    product = ProductReading("lora", "lora", left, right, scale=2.0).product({"a": down, "b": up})
    torch.testing.assert_close(product.left @ product.right.mT, 2 * up @ down)
    assert product.shape == (5, 3)
