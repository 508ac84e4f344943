"""Compare the archived runs and verdicts of an earlier revision with those of this checkout.

    python tools/compare_verdicts.py 71a5240
    python tools/compare_verdicts.py 71a5240 --within 0.01

Every value and outcome of every claim, network and seed has to be equal to the bit, and every file
of a run the same. With --within, values may differ by this share of the larger one, outcomes not at
all, and files may be compacted again. Seeds that are new do not count. A claim whose rule was
changed is compared by its first rule, "Y3" with "Y3-first". Verdicts of the earlier layout (one
file per experiment, networks in one label) are read too. Prints a line per claim and exits with 1
if something differs.
"""

import argparse
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

RESULTS = Path("results")
PARTS = ("K-Q", "V-O")
Outcome = tuple[float | None, bool | None]
Outcomes = dict[tuple[str, ...], Outcome]


def main(revision: str, *, within: float | None) -> int:
    before, after = _stored(revision), _present()
    claims = list(dict.fromkeys(place[0] for place in before))
    judged = {place[0] for place in after}
    differing, compared = 0, set()
    word = "equal" if within is None else f"the same, values within {within:.0%}"
    for claim in claims:
        first = f"{claim}-first"
        if first in claims or first not in judged:
            first = claim
        if first not in judged:
            print(f"{claim}: not judged any more")
            continue
        old = {
            (first, *place[1:]): outcome for place, outcome in before.items() if place[0] == claim
        }
        compared |= old.keys()
        wrong = {
            place: (old[place], after.get(place))
            for place in old
            if not _alike(old[place], after.get(place), within or 0.0)
        }
        differing += len(wrong)
        print(
            f"{first}: {len(old) - len(wrong)} of {len(old)} outcomes {word}",
            *wrong.items(),
            sep="\n  ",
        )
    extra = after.keys() - compared
    new = ", ".join(sorted({place[0] for place in extra})) or "none"
    print(f"outcomes only in this checkout: {len(extra)}, of {new}")
    lost, changed, count = _files(revision)
    if within is not None:
        print(f"files of runs: {count - len(lost)} of {count} are there", *lost, sep="\n  ")
        return 1 if differing or lost else 0
    print(
        f"files of runs: {count - len(lost) - len(changed)} of {count} the same",
        *lost,
        *changed,
        sep="\n  ",
    )
    return 1 if differing or lost or changed else 0


def _alike(before: Outcome, after: Outcome | None, within: float) -> bool:
    if after is None or before[1] != after[1] or (before[0] is None) != (after[0] is None):
        return False
    if before[0] is None or after[0] is None:
        return True
    return before[0] == after[0] or math.isclose(before[0], after[0], rel_tol=within)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _stored(revision: str) -> Outcomes:
    """The outcomes of the earlier revision; where a paper was judged as a whole, of that alone."""
    paths = [p for p in _git("ls-tree", "-r", "--name-only", revision, str(RESULTS)).splitlines()]
    verdicts = [path for path in paths if path.endswith("/verdicts.json")]
    whole = {Path(path).parent for path in verdicts if len(Path(path).parts) == 3}
    outcomes: Outcomes = {}
    for path in verdicts:
        folder = Path(path).parent
        if folder in whole or folder.parent not in whole:
            content = json.loads(_git("show", f"{revision}:{path}"))
            outcomes |= _read(content, experiment="" if folder in whole else folder.name)
    return outcomes


def _present() -> Outcomes:
    outcomes: Outcomes = {}
    for path in sorted(RESULTS.glob("*/verdicts.json")):
        outcomes |= _read(json.loads(path.read_text()), experiment="")
    return outcomes


def _read(content: dict, *, experiment: str) -> Outcomes:
    joint = Path(content.get("study", content.get("of", ""))).name == "yunis2024"
    return {
        (verdict["claim"], *_place(network, experiment, joint), str(seed["seed"])): (
            seed["value"],
            seed["met"],
        )
        for verdict in content["verdicts"]
        for network in verdict["networks"]
        for seed in network["seeds"]
    }


def _place(network: dict, experiment: str, joint: bool) -> tuple[str, ...]:
    """(experiment, network, variant, part) of either layout."""
    if "part" in network:
        (variant,) = [f"{n}-{v:g}" for n, v in network["variant"].items()] or [""]
        part = "strongest" if network["part"] == "most of all networks" else network["part"]
        name = "" if joint else Path(network["experiment"]).name
        return name, network["network"], variant, part
    label, _, part = network["network"].partition(", ")
    name, _, variant = label.partition("/")
    if label.startswith("strongest in "):
        return experiment, label.removeprefix("strongest in "), "", "strongest"
    return experiment, name, variant, part if part in PARTS else ""


def _files(revision: str) -> tuple[list[str], list[str], int]:
    lines = _git("ls-tree", "-r", revision, str(RESULTS)).splitlines()
    before = {line.split("\t")[1]: line.split()[2] for line in lines if line.endswith(".zip")}
    names = [name for name in before if Path(name).exists()]
    hashes = dict(zip(names, _git("hash-object", *names).split(), strict=True))
    lost = [f"{name} is gone" for name in before if name not in hashes]
    changed = [f"{name} differs" for name in names if hashes[name] != before[name]]
    return lost, changed, len(Counter(before))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--within", type=float, help="share by which values may differ")
    given = parser.parse_args()
    sys.exit(main(given.revision, within=given.within))
