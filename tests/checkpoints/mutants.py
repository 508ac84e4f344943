"""Child process that damages one checkpoint many times: `mutants.py KIND COUNT FOLDER`.

It prints the outcomes as JSON. Memory is limited, each reading has ten seconds, and an audit hook
ends the process if anything but a file of the folder is opened, or anything is executed.
"""

import io
import json
import os
import random
import resource
import signal
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gguf
import torch
import torch.distributed.checkpoint as dcp
from gguf.quants import quantize
from safetensors.torch import save_file

from rankscope.checkpoints import open_checkpoint
from test_store_mutations import mutated

KINDS = ("safetensors", "index", "zip", "pickle", "legacy", "gguf", "dcp")
SECONDS = 10
MEMORY = 10**9
FORBIDDEN = ("exec", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen")
FORBIDDEN += ("socket.connect", "pickle.find_class", "os.remove", "os.rename", "os.mkdir", "import")


def example() -> dict[str, torch.Tensor]:
    return {
        "layers.0.weight": torch.linspace(-1, 1, 96).reshape(3, 32),
        "layers.1.weight": torch.linspace(0, 1, 64).reshape(2, 32).bfloat16(),
        "norm.weight": torch.ones(32),
    }


def write(kind: str, folder: Path) -> tuple[Path, list[Path]]:
    """Write one checkpoint and return what to open and which files to damage."""
    tensors = example()
    if kind == "safetensors":
        save_file(tensors, folder / "x.safetensors")
        return folder / "x.safetensors", [folder / "x.safetensors"]
    if kind == "index":
        names = {}
        for number, (name, tensor) in enumerate(tensors.items(), 1):
            names[name] = f"model-{number:05}-of-00003.safetensors"
            save_file({name: tensor}, folder / names[name])
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": names}))
        (folder / "config.json").write_text('{"model_type": "x", "layers": [1, 2]}')
        return folder, [index, index, folder / "config.json", folder / names["norm.weight"]]
    if kind == "gguf":
        writer = gguf.GGUFWriter(folder / "x.gguf", "llama")
        writer.add_token_list(["a", "b"])
        q8 = gguf.GGMLQuantizationType.Q8_0
        for name, tensor in tensors.items():
            data = tensor.float().numpy()
            writer.add_tensor(name, quantize(data, q8) if data.ndim == 2 else data,
                              raw_dtype=q8 if data.ndim == 2 else None)  # fmt: skip
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return folder / "x.gguf", [folder / "x.gguf"]
    if kind == "dcp":
        dcp.save({"model": tensors}, checkpoint_id=folder, no_dist=True)
        return folder, [folder / ".metadata", folder / ".metadata", folder / "__0_0.distcp"]
    path = folder / "x.pt"
    torch.save({"model": tensors}, path, _use_new_zipfile_serialization=kind != "legacy")
    return path, [path]


def in_archive(data: bytes, moment: random.Random) -> bytes:
    """Damage the pickle, and zip it again so that the archive is whole."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, mutated(content, moment) if name.endswith(".pkl") else content)
    return out.getvalue()


def guard(folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Forbid all that a reader has no reason to do; return what switches the guard on and off."""
    switched_on: list[bool] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not switched_on:
            return
        if event == "open" and not str(arguments[0]).startswith(str(folder)):
            os.write(2, f"opened {arguments[0]!r}\n".encode())
            os._exit(3)
        if event in FORBIDDEN:
            os.write(2, f"{event} {arguments!r}\n".encode())
            os._exit(4)

    sys.addaudithook(hook)
    return lambda: switched_on.append(True), switched_on.clear


def limit_memory() -> None:
    """Let the process use `MEMORY` more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def read(path: Path) -> str:
    """Open a checkpoint and read all of it; return the outcome."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        checkpoint = open_checkpoint(path)
        for name, stored in checkpoint.tensors.items():
            if not stored.refusal:
                tensor = checkpoint.read(name)
                assert tuple(tensor.shape) == stored.shape and tensor.dtype == stored.dtype
        return "named" if checkpoint.problems else "read"
    except ValueError as refusal:
        sentence = str(refusal)
        assert sentence and "\n" not in sentence and len(sentence) < 1000, sentence
        return "refused"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(kind: str, count: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    place, files = write(kind, folder)
    originals = {path: path.read_bytes() for path in files}
    moment = random.Random(f"{kind} {count}")
    assert read(place) == "read"
    limit_memory()
    switch_on, switch_off = guard(folder)
    outcomes: Counter[str] = Counter()
    mutants = folder.with_suffix(".mutant")
    for _ in range(count):
        path = moment.choice(files)
        change = in_archive if kind == "pickle" else mutated
        data = change(originals[path], moment)
        if moment.randrange(3) == 0:
            data = mutated(data, moment)
        path.write_bytes(data)
        if len(outcomes) == 0:
            switch_on()
        try:
            outcomes[read(place)] += 1
        except BaseException as failure:
            switch_off()
            mutants.write_bytes(data)
            raise AssertionError(f"mutant in {mutants}") from failure
        path.write_bytes(originals[path])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**outcomes, "peak": peak}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
