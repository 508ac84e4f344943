"""Child process that scans damaged checkpoints with the command.

`mutants.py KIND[,KIND...] COUNT FOLDER` prints the outcomes of COUNT files of each kind as JSON. On
a breach it ends and leaves the file in FOLDER. Memory is limited, each command has ten seconds, and
an audit hook ends the process if anything but a file of FOLDER is opened, or anything is executed.
"""

import contextlib
import functools
import io
import json
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
import torch.distributed.checkpoint as dcp
import typer
from gguf.quants import quantize
from rich.cells import cell_len
from safetensors.torch import save_file

from checkpoints.damage import damaged
from rankscope.cli import main as command_line

KINDS = ("safetensors", "index", "zip", "pickle", "legacy", "gguf", "dcp")
FORMS = ((), ("--json",), ("--csv",), ("--leading", "2", "--like", "weightwatcher"))
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


def guard(folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Forbid all that a reader has no reason to do; return what switches the guard on and off."""
    switched_on: list[bool] = []
    home = os.path.join(os.path.realpath(folder), "")

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not switched_on:
            return
        outside = event == "open" and not os.path.realpath(str(arguments[0])).startswith(home)
        if outside or event in FORBIDDEN:
            switched_on.clear()
            traceback.print_stack(file=sys.__stderr__)
            os.write(2, f"{event} {arguments!r}\n".encode())
            os._exit(3)

    sys.addaudithook(hook)
    return lambda: switched_on.append(True), switched_on.clear


def limit_memory() -> None:
    """Let the process use `MEMORY` more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


@dataclass(frozen=True)
class Ran:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str


def ran(*arguments: object) -> Ran:
    """Run `rankscope scan` as a terminal does, within ten seconds: the alarm ends the process."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["rankscope", "scan", *map(str, arguments)]
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line()
    except SystemExit as end:
        assert end.code is None or isinstance(end.code, int)
        code = end.code or 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Ran(code, out.getvalue(), err.getvalue())


def outcome(scan: Ran) -> str:
    """Return what became of a damaged checkpoint; AssertionError if users could not tell."""
    lines = scan.err.splitlines()
    for line in lines:
        assert line.startswith("rankscope: ") and 20 < len(line) < 1000, scan
        assert line.isprintable() and "Traceback" not in line and "Error" not in line, scan
    if scan.code == 0:
        assert scan.out and all("NaN or Inf" in line for line in lines), scan
        return "read"
    assert scan.code == 2, scan
    if scan.out:
        assert lines, scan
        return "partial"
    assert len(lines) == 1, scan
    return "refused"


def series_outcome(whole: Path, damaged: Path) -> str:
    """Scan a whole checkpoint and a damaged one as a series: the whole one is always shown."""
    scan = ran(whole, damaged, "--csv")
    assert re.search(r"^layers\.0,(0,)?linear,3 x 32,5\.716", scan.out, re.MULTILINE), scan
    same = "holds the same weights as step 0"
    odd = [line for line in scan.err.splitlines() if same not in line and "step 1 " not in line]
    assert scan.code == 2 or not odd, scan
    assert all(line.startswith("rankscope: ") for line in odd), scan
    return {0: "series read", 2: "series partial"}[scan.code]


def main(kinds: Sequence[str], count: int, root: Path) -> None:
    warnings.simplefilter("ignore")
    typer.main.get_command = functools.cache(typer.main.get_command)  # a third of the time
    switch_on, switch_off = guard(root)
    limit_memory()
    for kind in kinds:
        folder = root / kind
        folder.mkdir()
        place, files = write(kind, folder)
        save_file(example(), root / "whole.safetensors")
        warm_up(place, files[0])
        switch_on()
        try:
            outcomes, slowest = trial(kind, count, place, files, root)
        finally:
            switch_off()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = {"kind": kind, "outcomes": outcomes, "peak": peak, "slowest": slowest}
        print(json.dumps(line), flush=True)


def trial(
    kind: str, count: int, place: Path, files: list[Path], root: Path
) -> tuple[Counter[str], float]:
    """Return the outcomes of so many damaged files, and the time of the slowest command."""
    originals = {path: path.read_bytes() for path in files}
    moment = random.Random(f"{kind} {count}")
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for number in range(count):
        path = moment.choice(files)
        data = damaged(kind, path.name, originals[path], moment)
        path.write_bytes(data)
        began = time.monotonic()
        if number % 10 == 9:
            outcomes[series_outcome(root / "whole.safetensors", place)] += 1
        else:
            outcomes[outcome(ran(place, *FORMS[number % len(FORMS)]))] += 1
        slowest = max(slowest, time.monotonic() - began)
        path.write_bytes(originals[path])
    return outcomes, slowest


def warm_up(place: Path, file: Path) -> None:
    """Import all that the command imports on its ways, before imports are forbidden."""
    cell_len("\u6f22")  # widths of letters in names
    original = file.read_bytes()
    for form in FORMS:
        assert outcome(ran(place, *form)) == "read"
    assert ran(place, place, "--csv").code == 0
    file.write_bytes(b"?")
    for form in FORMS:
        assert outcome(ran(place, *form)) in ("refused", "partial")
    file.write_bytes(original)


if __name__ == "__main__":
    try:
        main(sys.argv[1].split(","), int(sys.argv[2]), Path(sys.argv[3]))
    except Exception:  # typer has a hook of its own, which would hide half of the trace
        traceback.print_exc()
        sys.exit(1)
