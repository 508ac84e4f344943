"""One of two ranks that train with DDP or FSDP2: `python rank_of_two.py RANK FOLDER WAY`.

It saves what its layer gave out, and its gradients as the optimizer got them.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rankscope as rs
from rankscope.matrices import full_tensor


def main(rank: int, folder: Path, way: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    trained: nn.Module = model
    if way == "fsdp2":
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    else:
        trained = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    outputs: list[Tensor] = []
    model[0].register_forward_hook(lambda module, args, output: outputs.append(output.detach()))
    warnings.simplefilter("error")
    measure = [rs.Activations("0"), rs.Updates(), rs.Gradients(), rs.Moments()]
    if way == "first rank":
        measure = [rs.Activations("0", reduce=False), rs.Updates(), rs.Gradients()]
    tracker = None
    if rank == 0 or way != "first rank":
        tracker = rs.Tracker(trained, folder / "run", schedule=2, measure=measure)
    gradients = []
    for step in range(5):
        generator = torch.Generator().manual_seed(10 * step + rank)
        trained(torch.randn(3 + rank, 6, generator=generator)).square().mean().backward()
        if tracker is not None:
            tracker.observe(step)
        gradients.append(full_tensor(model[0].weight.grad).clone())
        optimizer.step()
        optimizer.zero_grad()
    if tracker is not None:
        tracker.close()
        assert tracker.failed is None, tracker.failed
    torch.save({"outputs": outputs, "gradients": gradients}, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
