"""What the papers say, a phrase for each claim; a second rule's key begins with the first one's."""

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
    first, _, second = claim.partition("-")
    phrase = SAYS.get(first, "")
    return f"{phrase} (second rule)" if second and phrase else phrase
