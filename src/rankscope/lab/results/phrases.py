"""What tables say of a claim and its verdict, in words."""

from collections import Counter
from collections.abc import Sequence

from rankscope.lab.tables import (
    LOST,
    first_rule,
    network_outcome,
    second_rule,
    span,
    standing,
)
from rankscope.lab.verdict import NetworkVerdict, Verdict

OF_SEED = " of seed"  # in what is not there, unless that is a whole network
NOT_THERE = "not there yet: "

SAYS = {
    "Y1": "large singular values grow faster than small ones",
    "Y2": "effective rank falls in nearly all matrices",
    "Y3": "neighbouring layers align weakly, not from the start, in the top ranks only",
    "Y3b": "alignment peaks early, then diffuses",
    "Y4": "more weight decay, lower rank",
    "Y5": "more weight decay, stronger alignment, most in the Transformer",
    "Y6": "the top half of each SVD stands for the network, the more so with decay",
    "Y7": "high decay still trains, but for the VGG",
    "Y8": "true labels give lower rank in the middle than random ones, and alignment that stays",
    "Y9": "rank drops as a network groks",
    "Y10": "queries and keys align best",
    "Y11": "filters align best at their centre",
    "Y12": "seeds agree",
    "B1": "the loss falls in stages, sharper as alpha falls",
    "B2": "one coordinate per stage",
    "B3": "times converge to Algorithm 1's like 1 / log(1/alpha)",
    "B4": "u² - v² is conserved",
    "B5": "assumptions 4.2-4.4 hold",
    "B6": "with full matrices, singular values appear in turn",
    "B7": "in ViTs the rank of the change from the start grows gradually",
    "B8": "a smaller start gives a change of lower rank",
    "B9": "the change is far lower in rank than the product it starts from",
}


def says(claim: str) -> str:
    """Of "Y3-median" what is said of Y3, and that the rule is a second one."""
    phrase = SAYS.get(first_rule(claim), "")
    return f"{phrase} (second rule)" if second_rule(claim) and phrase else phrase


def measured(verdict: Verdict) -> str:
    """What the value is, its range over seeds for each network, the bound, and what is missing.

    Networks whose values are of another kind have none here.
    """
    alike = [each for each in verdict.networks if each.network not in verdict.apart]
    if values := "; ".join(filter(None, map(_network_value, alike))):
        values = f"{verdict.quantity}: {values}" if verdict.quantity else values
        values += f"; bound {verdict.bound}" if verdict.bound else ""
    shown = "; ".join(filter(None, (values, lost(verdict))))
    return shown or "; ".join(verdict.evidence[:1]) or "-"


def lost(verdict: Verdict) -> str:
    """ "not there yet: unet, lm; vgg/decay-0, decay-0.1 of seed 1", whole networks first; or ""."""
    lost = [each.partition(":")[0] for each in verdict.evidence if each.startswith(LOST)]
    names = [each.removeprefix(LOST) for each in lost]
    parts = [name for name in names if OF_SEED in name]
    whole = ", ".join(name for name in names if OF_SEED not in name)
    return f"{NOT_THERE}{'; '.join(filter(None, (whole, *parts)))}" if names else ""


def _network_value(network: NetworkVerdict) -> str:
    return f"{network.network} {span(network.interval)}" if network.interval else ""


def outcome(verdict: Verdict) -> str:
    """The verdict; what each network says where they differ, and seeds where they are too few."""
    parts = {each.network: network_outcome(each) for each in verdict.networks}
    if set(parts.values()) <= {verdict.holds}:
        return verdict.holds
    return f"{verdict.holds}: {'; '.join(f'{name} {said}' for name, said in parts.items())}"


def summary(verdicts: Sequence[Verdict | None]) -> str:
    """How many claims hold; undecided ones by whether more runs could settle them."""
    said = Counter(map(standing, verdicts))
    settled = (
        f"{said['yes']} yes, {said['no']} no, {said['undecided']} undecided with all their runs"
    )
    met = sum(map(_met_so_far, verdicts))
    so_far = f" (of these {met} met by every seed that can tell)" if met else ""
    waiting = f"{said['waiting']} undecided until there are more runs{so_far}"
    return f"{len(verdicts)} claims: {settled}, {waiting}."


def _met_so_far(judged: Verdict | None) -> bool:
    """Whether it waits for runs, and all seeds that there are and that can tell meet the bound."""
    if judged is None or standing(judged) != "waiting":
        return False
    mets = {seed.met for network in judged.networks for seed in network.seeds}
    return True in mets and False not in mets
