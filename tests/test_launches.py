"""What a snapshot asks of a GPU: few launches, few waits, bounded memory, the CPU's values."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from counting import Counting, there
from rankscope import snapshot
from rankscope.matrices import Change, Product, named_tensors
from rankscope.snapshot import portions
from rankscope.spectra import decompose_leading, device, host, leading_stacks, stacks
from rankscope.spectra.decomposition import Matrix, now_and_before
from rankscope.spectra.task import Task
from rankscope.tracker.defaults import cut_to_leading

LAYERS, SHRUNK = 22, 32  # Llama of 1.1 billion parameters, and how much narrower the test's is
WIDTH = 320  # of networks whose leading parts are measured; smaller matrices have none


class Attention(nn.Module):
    """Heads of 2048 / SHRUNK units in all, of which eight share their keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.num_heads, self.num_key_value_heads = heads, kv_heads
        self.head_dim = width // heads
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            projection = nn.Linear(width, rows * self.head_dim, bias=False)
            setattr(self, f"{name}_proj", projection)
        self.o_proj = nn.Linear(width, width, bias=False)


class Layer(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.self_attn = Attention(width, 32, 4)
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)


def llama(layers: int = LAYERS, width: int = 2048 // SHRUNK) -> nn.Module:
    inner, vocabulary = 5632 * width // 2048, 32_000 * width // 2048
    model = nn.Module()
    model.embed_tokens = nn.Embedding(vocabulary, width)
    model.layers = nn.ModuleList(Layer(width, inner) for _ in range(layers))
    model.lm_head = nn.Linear(width, vocabulary, bias=False)
    return model


Weights = dict[str, Tensor]


def followed(model: nn.Module) -> tuple[snapshot.Plan, Weights, Weights]:
    """Plan of all that a tracker follows, weights in bfloat16 and those before a training."""
    chosen = rs.views(model)
    plan = snapshot.plan(chosen, pairs=rs.inside_pairs(model), products=True)
    weights = {name: x.detach().bfloat16() for name, x in named_tensors(model).items()}
    before = {name: (x + 0.01 * torch.randn(x.shape)).bfloat16() for name, x in weights.items()}
    return plan, weights, before


def on_device(weights: Weights) -> Weights:
    return {name: there(x) for name, x in weights.items()}


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut stacks as those of the whole model are cut: areas shrink by the square of widths."""
    monkeypatch.setattr(device, "BATCH_BYTES", device.BATCH_BYTES // SHRUNK**2)
    monkeypatch.setattr(stacks, "COLUMNS", stacks.COLUMNS // SHRUNK)
    monkeypatch.setattr(stacks, "SOLVER_BYTES", stacks.SOLVER_BYTES // SHRUNK**2)
    monkeypatch.setattr(portions, "PORTION", portions.PORTION // SHRUNK**2)


@pytest.mark.usefixtures("shrunk")
@pytest.mark.parametrize(
    ("layers", "decompositions", "launches", "waits"),
    [(2, 20, 1850, 40), pytest.param(LAYERS, 100, 7000, 160, marks=pytest.mark.slow)],
)
def test_a_snapshot_of_a_large_model_is_a_few_large_launches(
    layers: int, decompositions: int, launches: int, waits: int
) -> None:
    """A launch and a wait for each matrix made 71,274 and 14,345 of them with 22 layers."""
    torch.manual_seed(0)
    plan, weights, before = followed(llama(layers))
    matrices = len(plan.readings) + 2 * len(plan.products)
    assert matrices > 200 * layers
    with Counting() as counting:
        weights_there, before_there = on_device(weights), on_device(before)
        counting.operations.clear()
        measured = snapshot.measure(plan, weights_there, before_there)
    assert counting.decompositions <= decompositions
    assert counting.launches <= launches
    assert counting.waits <= waits
    assert measured.redone == ()
    assert_equal(measured, snapshot.measure(plan, weights, before))


@pytest.fixture
def shrunk_leading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut stacks of leading parts as those of the whole model are cut."""
    shrinks = (2048 // WIDTH) ** 2
    monkeypatch.setattr(leading_stacks, "STACK_BYTES", leading_stacks.STACK_BYTES // shrinks)
    monkeypatch.setattr(portions, "PORTION", portions.PORTION // shrinks)


@pytest.mark.usefixtures("shrunk_leading")
def test_a_leading_snapshot_of_a_large_model_is_a_few_large_launches() -> None:
    """Sixteen matrices and their changes; a space for each took hundreds of waits."""
    torch.manual_seed(0)
    plan, weights, before = followed(llama(layers=2, width=WIDTH))
    plan = cut_to_leading(plan, 12)
    with Counting() as counting:
        weights_there, before_there = on_device(weights), on_device(before)
        counting.operations.clear()
        counting.waits = 0
        measured = snapshot.measure(plan, weights_there, before_there)
    assert counting.launches <= 6000
    assert counting.waits <= 110
    assert measured.redone == ()
    expected = snapshot.measure(plan, weights, before)
    for name, values in expected.values.items():
        if "leading" in name:
            tolerance = 0.2 if name.endswith("remainder") else 2e-3  # of a bound; of values
            np.testing.assert_allclose(measured.values[name], values, rtol=tolerance, err_msg=name)


def test_launches_for_a_stack_of_leading_parts_do_not_grow_with_it() -> None:
    torch.manual_seed(0)
    weights = {str(i): torch.randn(WIDTH, WIDTH).bfloat16() for i in range(8)}
    for count in (2, 8):
        with Counting() as counting:
            matrices = {name: there(W) for name, W in list(weights.items())[:count]}
            counting.operations.clear()
            counting.waits = 0
            decompose_leading(matrices, 12, tolerance=1e-4)
        assert counting.launches <= 750
        assert counting.waits <= 18


def test_what_has_not_changed_is_not_decomposed() -> None:
    torch.manual_seed(0)
    plan, weights, _ = followed(llama(layers=2))
    with Counting() as counting:
        moved = on_device(weights)
        counting.operations.clear()
        whole = snapshot.measure(plan, moved, moved)
        solved = counting.operations["_linalg_eigh"]
        counting.operations.clear()
        snapshot.measure(plan, moved)
    assert solved == counting.operations["_linalg_eigh"]
    for name in ("change_singular_values", "product_change_singular_values"):
        assert np.nanmax(whole.values[name]) == np.nanmin(whole.values[name]) == 0.0


def assert_equal(measured: snapshot.Snapshot, expected: snapshot.Snapshot) -> None:
    assert measured.values.keys() == expected.values.keys()
    for name, values in expected.values.items():
        # Directions of values that lie close to each other are off by more than the values.
        tolerance = 1e-12 if name.endswith("values") else 1e-9
        np.testing.assert_allclose(
            measured.values[name], values, rtol=0, atol=tolerance * np.nanmax(values), err_msg=name
        )


def test_stacks_of_the_whole_model_are_few_and_fit_into_memory() -> None:
    """Shapes of the whole model, without numbers: 1.1 billion of them are not needed."""
    sizes = {"q": (2048, 2048), "gate": (5632, 2048), "up": (5632, 2048), "down": (2048, 5632)}
    all_tasks = [
        task(name, shape, change=change)
        for name, shape in sizes.items()
        for change in (False, True)
        for _ in range(LAYERS)
    ]
    all_tasks += [task("o", (2048, 2048), rank=100) for _ in range(LAYERS)]
    all_tasks += [task("head", (64, 2048), rank=64) for _ in range(40 * LAYERS)]
    all_tasks += [
        task("product", (2048, 64), (2048, 64), change=change)
        for change in (False, True)
        for _ in range(64 * LAYERS)
    ]
    batches = list(device.batches(all_tasks))
    assert len(batches) <= 50
    for batch in batches:
        assert sum(map(stacks.bytes_of, batch)) <= device.BATCH_BYTES
    assert device.BATCH_BYTES + 8 * portions.PORTION <= 2 * 2**30


def task(name: str, *shapes: tuple[int, int], change: bool = False, rank: int = 0) -> Task:
    factors = tuple(torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    return Task(name, factors, factors if change else (), rank)


@pytest.mark.gpu
def test_stacks_of_the_whole_model_stay_below_two_gibibytes() -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def weights(count: int, *shape: int) -> list[Tensor]:
        options = {"device": "cuda", "dtype": torch.bfloat16, "generator": generator}
        return [torch.randn(shape, **options) for _ in range(count)]

    now, before = weights(20, 2048, 5632), weights(20, 2048, 5632)
    left, right, left0, right0 = (weights(300, 2048, 64) for _ in range(4))
    jobs: dict[str, Matrix] = {}
    jobs |= {f"W{i}": W for i, W in enumerate(now)}
    jobs |= {f"dW{i}": Change(W, W0) for i, (W, W0) in enumerate(zip(now, before, strict=True))}
    jobs |= {f"o{i}": W[:, :2048] for i, W in enumerate(now)}
    jobs |= {f"head{i}": W.mT for i, W in enumerate(left[:240])}
    ranks = {name: 100 if name.startswith("o") else 64 for name in jobs if name[0] in "oh"}
    products = [Product(*pair) for pair in zip(left, right, strict=True)]
    products0 = [Product(*pair) for pair in zip(left0, right0, strict=True)]
    jobs |= {f"p{i}": product for i, product in enumerate(products)}
    pairs = zip(products, products0, strict=True)
    jobs |= {f"dp{i}": Change(product, product0) for i, (product, product0) in enumerate(pairs)}
    redone: list[str] = []
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = rs.decompose(jobs, ranks=ranks, on_redone=redone.extend)
    torch.cuda.synchronize()
    assert redone == []
    assert torch.cuda.max_memory_allocated() - held <= 2 * 2**30
    for name in ("W3", "dW3", "o3", "head3", "p3", "dp3"):
        now_there, before_there = now_and_before(name, jobs[name])
        (exact,) = host.solve_stack(
            [
                Task(
                    name,
                    tuple(factor.cpu() for factor in now_there),
                    tuple(factor.cpu() for factor in before_there),
                    rank=0,
                )
            ]
        )
        largest = float(exact.svd.S[0])
        torch.testing.assert_close(
            results[name].S.cpu(), exact.svd.S, rtol=0, atol=2e-11 * largest, msg=name
        )
