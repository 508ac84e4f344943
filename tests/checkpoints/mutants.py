"""Child process that reads damaged checkpoints with the commands `scan` and `lora`.

`mutants.py KIND[,KIND...] COUNT FOLDER` prints the outcomes of COUNT checkpoints of each kind as
JSON. The kind `large` has a list of its own instead. On a breach the child ends and leaves the
checkpoint in FOLDER. Memory is limited, and each command has ten seconds. While a command runs, an
audit hook ends the process if anything outside FOLDER is opened or listed, anything is written, or
anything is executed.
"""

import contextlib
import functools
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import torch
import torch.distributed.checkpoint as dcp
import typer
from gguf.quants import quantize
from rich.cells import cell_len
from safetensors.torch import save_file

from checkpoints.damage import damaged, replaced
from rankscope import store
from rankscope.cli import main as command_line

KINDS = ("safetensors", "index", "zip", "pickle", "legacy", "gguf", "dcp", "adapter")
DAMAGED, WHOLE = "damaged", "whole"  # places of the two checkpoints in a command
FORMS = (
    ("scan", DAMAGED),
    ("scan", DAMAGED, "--json"),
    ("scan", DAMAGED, "--csv"),
    ("scan", DAMAGED, "--leading", "2", "--like", "weightwatcher"),
    ("scan", DAMAGED, "--csv", "--base", WHOLE),
    ("scan", WHOLE, "--csv", "--base", DAMAGED),
    ("lora", WHOLE, DAMAGED, "--json"),
    ("lora", DAMAGED, WHOLE, "--json"),
)
ADAPTER_FORMS = (
    *FORMS[:5],
    ("lora", DAMAGED, "--json"),
    ("lora", DAMAGED, "--json"),
    ("lora", DAMAGED, "--base", WHOLE, "--json"),
    ("lora", WHOLE, DAMAGED, "--json"),
    ("lora", DAMAGED, DAMAGED, "--diff", "--json"),
)
LEFT_OUT = "rankscope: left out: "  # a tensor that cannot be compared
SERIES = ("scan", WHOLE, DAMAGED, "--csv")
SERIES_EVERY, STORED_EVERY, REPLACED_EVERY = 10, 200, 40
SECONDS = 10
MEMORY = 10**9
FORBIDDEN: tuple[str, ...] = (
    "exec",
    "import",
    "pickle.find_class",
    "ctypes.dlopen",
    "marshal.loads",
)
FORBIDDEN += ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
FORBIDDEN += ("subprocess.Popen", "socket.connect", "socket.getaddrinfo", "socket.bind", "os.kill")
WRITING: tuple[str, ...] = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
)
WRITING += ("os.truncate", "os.utime", "shutil.rmtree")
LISTING = ("os.listdir", "os.scandir", "os.chdir")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


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
    if kind == "adapter":
        return folder, write_adapter(folder)
    if kind == "dcp":
        dcp.save({"model": tensors}, checkpoint_id=folder, no_dist=True)
        return folder, [folder / ".metadata", folder / ".metadata", folder / "__0_0.distcp"]
    path = folder / "x.pt"
    torch.save({"model": tensors}, path, _use_new_zipfile_serialization=kind != "legacy")
    return path, [path]


def write_adapter(folder: Path) -> list[Path]:
    """Write an adapter of PEFT for the layers of the example, and return its files."""
    factors = {}
    for layer, rows in (("layers.0", 3), ("layers.1", 2)):
        factors[f"base_model.model.{layer}.lora_A.weight"] = torch.linspace(-1, 1, 64).view(2, 32)
        factors[f"base_model.model.{layer}.lora_B.weight"] = torch.ones(rows, 2).cumsum(0)
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    save_file({**factors, "base_model.model.norm.weight": torch.ones(32)}, weights)
    patterns = {"rank_pattern": {"layers.1": 2}, "alpha_pattern": {"^layers\\.0": 3.5}}
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_rslora": True}
    config.write_text(json.dumps({**settings, **patterns, "target_modules": ["0", "1"]}))
    return [weights, config]


def forms(kind: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that read a checkpoint of this kind."""
    return ADAPTER_FORMS if kind == "adapter" else FORMS


class Guard:
    """Audit hook that ends the process on what a reader has no reason to do, while it is on."""

    def __init__(self, folder: Path) -> None:
        self._home = os.path.join(os.path.realpath(folder), "")
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and self.forbids(event, arguments):
            self.on = False
            traceback.print_stack(file=sys.__stderr__)
            os.write(2, f"{event} {arguments!r}\n".encode())
            os._exit(3)

    def forbids(self, event: str, arguments: tuple[object, ...]) -> bool:
        """Tell whether a reader has no reason to do this."""
        if event == "open":
            assert isinstance(arguments[2], int)
            return bool(arguments[2] & WRITES) or not self._within(arguments[0])
        if event in LISTING:
            return not self._within(arguments[0])
        return event in FORBIDDEN or event in WRITING

    def _within(self, path: object) -> bool:
        place = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path)
        return os.path.join(os.path.realpath(place), "").startswith(self._home)


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


def ran(*arguments: object, guard: Guard | None = None, seconds: float = SECONDS) -> Ran:
    """Run `rankscope` as a terminal does, within so many seconds: the alarm ends the process."""
    raw_out, raw_err = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(raw, "utf-8", write_through=True) for raw in (raw_out, raw_err))
    sys.argv = ["rankscope", *map(str, arguments)]
    signal.setitimer(signal.ITIMER_REAL, seconds)
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if guard is not None:
                guard.on = True
            command_line()
    except SystemExit as end:
        assert end.code is None or isinstance(end.code, int)
        code = end.code or 0
    finally:
        if guard is not None:
            guard.on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Ran(code, raw_out.getvalue().decode(), raw_err.getvalue().decode())


def outcome(run: Ran) -> str:
    """Return what became of a damaged checkpoint; AssertionError if users could not tell."""
    lines = run.err.splitlines()
    for line in lines:
        assert line.startswith("rankscope: ") and 20 < len(line) < 1000, run
        assert line.isprintable() and "Traceback" not in line and "Error" not in line, run
    assert all(line.isprintable() for line in run.out.split("\n")), run
    if run.code == 0:
        assert run.out and all("NaN or Inf" in line or LEFT_OUT in line for line in lines), run
        return "read"
    assert run.code == 2, run
    if run.out:
        assert lines, run
        return "partial"
    assert len(lines) == 1, run
    return "refused"


def series_outcome(run: Ran) -> str:
    """Return what became of a whole checkpoint and a damaged one: the whole one is always shown."""
    assert re.search(r"^layers\.0,(0,)?linear,3 x 32,5\.716", run.out, re.MULTILINE), run
    same = "holds the same weights as step 0"
    odd = [line for line in run.err.splitlines() if same not in line and "step 1 " not in line]
    assert run.code == 2 or not odd, run
    assert all(line.startswith("rankscope: ") for line in odd), run
    return {0: "series read", 2: "series partial"}[run.code]


def stored_outcome(whole: Path, damaged: Path, out: Path) -> str:
    """Scan both into a run, which then holds the whole one."""
    scan = ran(*placed(SERIES, whole, damaged), "-o", out)
    written, _, sentences = scan.err.partition("\n")
    assert "run written, " in written, scan
    result = series_outcome(replace(scan, err=sentences))
    with store.open(out) as run:
        assert float(run["norm"].sel(step=0, matrix="layers.0")) == whole_norm(), run
    shutil.rmtree(out)
    return result


def whole_norm() -> float:
    """Return the Frobenius norm of the first matrix of the whole checkpoint."""
    return float(example()["layers.0.weight"].double().norm())


def placed(form: Sequence[str], whole: Path, damaged: Path) -> list[object]:
    """Return the arguments of a command with both paths in their places."""
    return [{WHOLE: whole, DAMAGED: damaged}.get(word, word) for word in form]


def main(kinds: Sequence[str], count: int, root: Path) -> None:
    warnings.simplefilter("ignore")
    typer.main.get_command = functools.cache(typer.main.get_command)  # a third of the time
    guard = Guard(root)
    limit_memory()
    whole = root / "whole.safetensors"
    save_file({**example(), "layers.1.weight": torch.eye(2, 32).bfloat16()}, whole)
    for kind in kinds:
        folder = root / kind
        folder.mkdir()
        place, files = write("safetensors" if kind == "large" else kind, folder)
        warm_up(forms(kind), whole, place, files[0])
        if kind == "large":
            outcomes, slowest = large_trial(folder, guard)
        else:
            outcomes, slowest = trial(kind, count, whole, place, files, guard)
        line = {"kind": kind, "outcomes": outcomes, "peak": peak_memory(), "slowest": slowest}
        print(json.dumps(line), flush=True)


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def trial(
    kind: str, count: int, whole: Path, place: Path, files: list[Path], guard: Guard
) -> tuple[Counter[str], float]:
    """Return the outcomes of so many damaged checkpoints, and the time of the slowest command."""
    originals = {path: path.read_bytes() for path in files}
    moment = random.Random(f"{kind} {count}")
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for number in range(count):
        path = moment.choice(files)
        if place.is_dir() and number % REPLACED_EVERY == REPLACED_EVERY - 2:
            replaced(path, moment)
        else:
            path.write_bytes(damaged(kind, path.name, originals[path], moment))
        began = time.monotonic()
        if number % STORED_EVERY == STORED_EVERY - 1:
            result = stored_outcome(whole, place, whole.with_name("run.zarr"))
        elif number % SERIES_EVERY == SERIES_EVERY - 1:
            result = series_outcome(ran(*placed(SERIES, whole, place), guard=guard))
        else:
            form = forms(kind)[moment.randrange(len(forms(kind)))]
            result = f"{form[0]} " * (form[0] != "scan") + outcome(
                ran(*placed(form, whole, place), guard=guard)
            )
        slowest = max(slowest, time.monotonic() - began)
        outcomes[result] += 1
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(originals[path])
    return outcomes, slowest


def large_trial(folder: Path, guard: Guard) -> tuple[Counter[str], float]:
    """Return the outcomes of the large forgeries, and the CPU time of the slowest command."""
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    forgeries = folder / "forgeries"
    forgeries.mkdir()
    script = Path(__file__).with_name("large_forgeries.py")  # whose own memory does not count here
    subprocess.run([sys.executable, script, forgeries], check=True)
    for path in sorted(forgeries.iterdir()):
        began = time.process_time()  # other work on the machine does not count
        outcomes[outcome(ran("scan", path, guard=guard, seconds=6 * SECONDS))] += 1
        slowest = max(slowest, time.process_time() - began)
    return outcomes, slowest


def warm_up(forms: Sequence[Sequence[str]], whole: Path, place: Path, file: Path) -> None:
    """Import all that the commands import on their ways, before imports are forbidden."""
    cell_len("\u6f22")  # widths of letters in names
    original = file.read_bytes()
    for form in forms:
        ran(*placed(form, whole, place))
    file.write_bytes(b"?")
    for form in forms:
        assert outcome(ran(*placed(form, whole, place))) in ("refused", "partial")
    file.write_bytes(original)


if __name__ == "__main__":
    try:
        main(sys.argv[1].split(","), int(sys.argv[2]), Path(sys.argv[3]))
    except Exception:  # typer has a hook of its own, which would hide half of the trace
        traceback.print_exc()
        sys.exit(1)
