"""Pairs of adjacent matrices, where one feeds the other: declared, known by rule or discovered."""

from rankscope.pairs.discovery import Pairs as Pairs
from rankscope.pairs.discovery import discover_pairs as discover_pairs
from rankscope.pairs.matching import LeftOut as LeftOut
from rankscope.pairs.pair import Cut as Cut
from rankscope.pairs.pair import Pair as Pair
from rankscope.pairs.pair import Side as Side
from rankscope.pairs.rules import inside_pairs as inside_pairs
from rankscope.pairs.rules import pair_rule as pair_rule
