"""Run a model on an example and check every attention module on the way."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from rankscope.matrices import Attention, Manifest, attentions, manifest
from rankscope.matrices.verification import Verification, Verified
from rankscope.matrices.wrappers import unwrap, walk
from rankscope.pairs.forward import eager
from rankscope.pairs.neutral import unchanged
from rankscope.verification.comparison import Finding, compare
from rankscope.verification.recording import in_plain_steps
from rankscope.verification.trial import Trial

NOT_REACHED = "this example did not reach it"


def verify(model: nn.Module, example: Any) -> Verification:
    """Run a model once and say which attention heads are what they were read as.

    Where the forward pass calls an attention module, a copy of the module with random weights is
    called with the same inputs. Changed query, key and value weights show which logits, and which
    inputs of the output projection, depend on which head. Normalisations count as fixed scales.
    The model, its buffers, gradients and modes and the random numbers stay as they are.

    example: inputs of the model: a tensor, a tuple of arguments or a dict of named ones. A batch of
        one with a few tokens is enough.
    """
    args, kwargs = _arguments(example)
    module = unwrap(model)
    outcomes: dict[str, Finding] = {}
    parts = dict(walk(module))
    with unchanged(module), eager(), torch.no_grad(), in_plain_steps(), ExitStack() as hooks:
        known = attentions(model)
        for name, attention in known.items():
            check = _check(attention, outcomes)
            hooks.enter_context(parts[name].register_forward_pre_hook(check, with_kwargs=True))
        try:
            module(*args, **kwargs)
        except Exception as error:
            raise ValueError(
                f"the forward pass of {type(module).__name__} failed on the example "
                f"({_first_line(error)}); pass inputs as in training"
            ) from error
    return Verification(
        tuple(Verified(name, *outcomes.get(name, ("assumed", NOT_REACHED))) for name in known)
    )


def verified_manifest(
    model: nn.Module, example: Any | None, *, raw: bool = False
) -> Manifest | None:
    """Return the manifest of a model with verified heads, or assumed ones if verifying fails.

    None without an example.
    """
    if example is None:
        return None
    known = manifest(model, raw=raw)
    try:
        return known.verified(verify(model, example))
    except Exception as error:
        reason = f"verifying failed ({_first_line(error)})"
        lines = (Verified(attention.name, "assumed", reason) for attention in known.attentions)
        return known.verified(Verification(tuple(lines)))


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def _check(attention: Attention, outcomes: dict[str, Finding]) -> Any:
    """Return a hook that checks a module when it is first called."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if attention.name not in outcomes:
            outcomes[attention.name] = _outcome(attention, module, args, kwargs)

    return hook


def _outcome(
    attention: Attention, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Finding:
    reason = ""
    # A module that insists on its own precision is called in that.
    for dtype in (torch.float64, None):
        try:
            return compare(attention, Trial(module, attention.name, args, kwargs, dtype))
        except Exception as error:
            reason = reason or f"a copy of it could not be called ({_first_line(error)})"
    return "assumed", reason


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
