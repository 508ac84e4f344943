"""TransformerTask against the attention of Eq. 1 written out, and the tie of Example 4.6."""

import torch
import torch.nn.functional as F

from rankscope.lab.papers.boix2023.simulations.transformer_task import TransformerTask
from rankscope.theory import diagonal_attention, flow, transformer_output
from theory.cases import normal

TASK = TransformerTask(d=3, tokens=4, samples=10, layers=2, heads=3)


def test_a_turned_head_is_a_head_on_turned_tokens():
    x, z = normal(5, 6, 4, seed=0), normal(2 * 3 * 2 * 4, seed=1)
    bases = torch.linalg.qr(normal(2, 3, 4, 4, seed=2)).Q
    feedforward = [tuple(normal(2, 4, 7, seed=seed)) for seed in (3, 4)]
    output = transformer_output(x, z, heads=3, bases=bases, feedforward=feedforward)
    for layer, (W_A, W_B) in enumerate(feedforward):
        products = z.view(2, 3, 2, 4)[layer]
        x = x + sum(
            diagonal_attention(x @ R, kq, vo) @ R.T
            for R, (kq, vo) in zip(bases[layer], products, strict=True)
        )
        x = x + F.gelu(x @ W_A) @ W_B.T
    torch.testing.assert_close(output, x, rtol=1e-12, atol=1e-10)


def test_a_seed_gives_the_same_start_and_tokens_whatever_the_heads():
    plain = TASK.build(1)
    other = TransformerTask(3, 4, 10, heads=3, bases="own").build(1)
    assert torch.equal(plain.network.x, other.network.x)
    assert torch.equal(plain.u0, other.u0) and torch.equal(plain.v0, other.v0)
    assert not torch.equal(TASK.build(2).u0, plain.u0)


def test_drives_of_heads_are_equal_in_a_shared_basis_only():
    for bases, alike in (("shared", True), ("own", False)):
        toy = TransformerTask(3, 4, 10, heads=3, bases=bases).build(0)
        kq, vo = toy.network.g(torch.zeros_like(toy.u0)).view(2, 3, 2, 3).unbind(2)
        assert float(kq.abs().max()) < 1e-12 < float(vo.abs().min())
        assert torch.allclose(vo, vo[:, :1].expand_as(vo), rtol=1e-9) == alike


def test_tied_heads_grow_in_the_shares_of_their_start():
    toy = TASK.build(0)
    # By the time the fourth entry becomes active, the first three are one entry in three heads.
    trajectory = flow(toy.network, toy.u0, toy.v0, -300.0, 50.0, stop_after=4)
    first = toy.network.coordinates[trajectory.activations[0].coordinate]
    heads = [
        i
        for i, coordinate in enumerate(toy.network.coordinates)
        if (coordinate.kind, coordinate.layer, coordinate.index) == ("vo", first.layer, first.index)
    ]
    sign = trajectory.activations[0].sign
    shares = (toy.u0[heads] + sign * toy.v0[heads]).square()
    z = trajectory.z[-1, heads]
    torch.testing.assert_close(z / z.sum(), shares / shares.sum(), rtol=1e-2, atol=1e-4)
