"""Print benchmark tables: `python -m benchmarks [spectra ... gpu_training] [--device cuda]`."""

import argparse
from importlib import import_module

ON_DEVICE = ("spectra", "engine", "imagenet")
BENCHMARKS = (
    "spectra",
    "tracker",
    "engine",
    "leading",
    "ranks",
    "measures",
    "lora",
    "scan",
    "short_runs",
    "store",
    "theory",
    "training",
    "view",
    "gpu_steps",
    "gpu_training",
    "overhead",
    "imagenet",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="benchmark", help=", ".join(BENCHMARKS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="paper", choices=("paper", "tiny"), help="of imagenet")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(BENCHMARKS)):
        parser.error(f"no benchmark {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
    for name in arguments.names or BENCHMARKS:
        run = import_module(f"benchmarks.{name}").main
        options = {"device": arguments.device} if name in ON_DEVICE else {}
        run(**options, **({"size": arguments.size} if name == "imagenet" else {}))


if __name__ == "__main__":
    main()
