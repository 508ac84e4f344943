"""Compact the archived runs of a folder again, where their experiment declares less than before.

    python tools/compact_again.py results
    python tools/compact_again.py FOLDER --pack

A file that has fewer digits or snapshots than declared now cannot be mended; it is named and stays.
With --pack files that are as declared are written again too, as small as they get. Nothing is
judged.
"""

import argparse
import sys
from pathlib import Path

from rankscope import store
from rankscope.lab.archive.compaction import Compaction, Thinned, Way, compact, rules_of
from rankscope.lab.catalogue import load_studies
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.stored_run import runs_on_disk
from rankscope.store.archive import archive_attrs, packed
from rankscope.store.files import replace_file


def main(folder: Path, *, pack: bool) -> int:
    before, after, too_short = 0, 0, list[Path]()
    for experiment in (e for study in load_studies("paper") for e in study.experiments):
        how = experiment.compaction
        for stored in runs_on_disk(experiment, folder):
            former = archive_attrs(stored.path)["compaction"]
            same = former == declaration(how)
            if same and not pack:
                continue
            if not (same or is_shorter(how, former)):
                too_short.append(stored.path)
                continue
            content = packed(compact(store.open(stored.path), how))
            before, after = before + stored.path.stat().st_size, after + len(content)
            replace_file(stored.path, content, durable=False)
    print(f"{folder}: {before / 1e6:.1f} MB became {after / 1e6:.1f} MB")
    for path in too_short:
        print(f"{path} has less than is declared now; archive the run itself")
    return 1 if too_short else 0


def is_shorter(how: Way, former: dict) -> bool:
    """Whether all that a compaction stores is in files of a former one, a plain one."""
    if former["class"] != Compaction.__name__:
        return False
    bits, rules = former["bits"]["mapping"], rules_of(how)
    shorter = dict.fromkeys(how.grains, 0) if isinstance(how, Thinned) else {}
    shorter |= rules.bits
    coarser = all(name in shorter and shorter[name] <= bits[name] for name in bits)
    return coarser and set(former["ends"]) <= {*rules.ends}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pack", action="store_true", help="write all files again")
    given = parser.parse_args()
    sys.exit(main(given.folder, pack=given.pack))
