"""Compare the heads of an attention module, as they were read, with what its forward pass does."""

from torch import Tensor

from rankscope.matrices import Attention
from rankscope.matrices.verification import Outcome
from rankscope.verification.form import wrong_form, wrong_values
from rankscope.verification.layout import Layout
from rankscope.verification.order import Order, order
from rankscope.verification.trial import Trial

Finding = tuple[Outcome, str]
NO_LOGITS = "no logit depends on both the query and the key weights that were read"


def compare(attention: Attention, trial: Trial) -> Finding:
    """Return the outcome for one attention module, and why."""
    layout = Layout(attention, trial)
    sites = layout.logit_sites()
    if not sites:
        return _without_logits(layout)
    for site in sites:
        reason = layout.wrong_heads(site) or wrong_form(layout, site)
        if reason is not None:
            return "refuted", reason
    heads = {int(h) for s in sites for h in layout.on_queries[s].head[layout.both(s)].unique()}
    if heads != set(layout.heads):
        missing = min(set(layout.heads) - heads)
        return "refuted", f"no logit depends on the query weights read for head {missing}"
    if attention.output is None:
        finding: Finding = "verified", f"K^T Q of {attention.heads} heads are those computed"
    else:
        finding = _output(layout, layout.columns())
    return _with_order(finding, order(layout, sites)) if finding[0] == "verified" else finding


def _with_order(finding: Finding, read: Order) -> Finding:
    if read == "swapped":
        return "refuted", "its queries were read as keys and its keys as queries"
    if read == "unknown":
        return "assumed", "nothing shows which projection is the query and which the key"
    return finding


def _without_logits(layout: Layout) -> Finding:
    sides = zip(layout.on_queries, layout.on_keys, layout.on_values, strict=True)
    for site, (queries, keys, values) in enumerate(sides):
        in_softmax = site < layout.sites and bool((queries.any | keys.any).any())
        if in_softmax or bool((keys.any & values.any & ~queries.any).any()):
            return "refuted", NO_LOGITS
    return "assumed", "no softmax or product was seen in which queries and keys meet"


def _output(layout: Layout, columns: list[Tensor]) -> Finding:
    """Compare the inputs of the output projection, by head and unit, with those that were read."""
    queries, values = layout.on_queries[-1], layout.on_values[-1]
    if len(queries.any) != sum(map(len, columns)):
        return "assumed", "what enters its output projection was not seen"
    if not values.any.all():
        return "refuted", "its output projection takes columns that depend on no value weights read"
    # In differential attention two query heads weight one head of values.
    one_to_one = len(columns) == len(layout.heads)
    for head, own in enumerate(columns):
        if values.several[own].any() or (one_to_one and queries.several[own].any()):
            return "refuted", f"output columns read for head {head} depend on several heads"
        other = values.head[own][values.head[own] != layout.value_of[head]]
        if len(other):
            return "refuted", f"output columns read for head {head} carry value head {other[0]}"
    if not queries.any.all():
        return "assumed", "one key to attend to: use an example with several tokens"
    wrong = [head for head, own in enumerate(columns) if (queries.head[own] != head).any()]
    if wrong and one_to_one:
        return "refuted", f"output columns read for head {wrong[0]} are weighted by another head"
    reason = wrong_values(layout, columns)
    if reason is not None:
        return "refuted", reason
    return "verified", f"K^T Q and O V of {len(layout.heads)} heads are those computed"
