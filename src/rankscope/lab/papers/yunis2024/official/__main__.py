"""Draw the authors' evaluation beside our VGGs.

python -m rankscope.lab.papers.yunis2024.official
"""

import argparse
from pathlib import Path

from rankscope.lab.archive.documents import save_png
from rankscope.lab.judging.available_runs import load_runs
from rankscope.lab.papers.yunis2024 import vgg
from rankscope.lab.papers.yunis2024.official.drawing import official_vgg
from rankscope.lab.papers.yunis2024.runs import base_runs_of

PICTURE = Path("docs/papers/figures/yunis2024/official-vgg")


def main() -> None:
    """Write the picture of the paper's page, or another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=PICTURE, help="path without suffix")
    options = parser.parse_args()
    available = load_runs([vgg.experiment("paper")], options.results)
    runs, _ = available.select(base_runs_of("vgg"))
    (path,) = save_png(official_vgg(runs, options.results), options.out)
    print(path)


if __name__ == "__main__":
    main()
