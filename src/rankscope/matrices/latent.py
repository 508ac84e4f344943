"""Multi-head latent attention: keys and values computed from a narrow latent (DeepSeek-V2).

With latents c = D_KV x and c_Q = D_Q x, head h has keys U_K c and queries U_Q c_Q, so

    K_h^T Q_h = (U_K D_KV)^T (U_Q D_Q),    O_h V_h = O_h (U_V D_KV).

Queries and keys have a second, rotary part, which K_h^T Q_h leaves out. The latents pass an RMS
norm, whose scale and gain are left out too.
"""

from dataclasses import replace

from torch import nn

from rankscope.matrices.attention import Attention, assembled
from rankscope.matrices.fused import windows_of
from rankscope.matrices.projection_names import HEADS, attribute, output_name
from rankscope.matrices.projections import output_projection, projection
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.wrappers import children

NOTE = "products through the latents, without rotary parts and latent norms"


def recognised_latent(module: nn.Module, name: str) -> Attention | None:
    """Recognise the projections of DeepSeek-V2 and its followers."""
    layers = children(module)
    if not {"kv_a_proj_with_mqa", "kv_b_proj"} <= layers.keys():
        return None
    heads = attribute(module, HEADS)
    plain_dim = attribute(module, ("qk_nope_head_dim",))
    rotary_dim = attribute(module, ("qk_rope_head_dim",))
    value_dim, rank = attribute(module, ("v_head_dim",)), attribute(module, ("kv_lora_rank",))
    if None in (heads, plain_dim, rotary_dim, value_dim, rank):
        raise ValueError(f"attention {name!r}: heads, or widths of its latent, are unknown")
    assert heads and plain_dim and rotary_dim and value_dim and rank
    query_path = next((path for path in ("q_b_proj", "q_proj") if path in layers), None)
    if query_path is None:
        raise ValueError(f"attention {name!r}: projections {list(layers)}, none of them of queries")
    query = projection(module, name, query_path)
    query, _ = windows_of(query, name, heads, {"q": plain_dim, "q_rotary": rotary_dim})
    up = projection(module, name, "kv_b_proj")
    key, value = windows_of(up, name, heads, {"k": plain_dim, "v": value_dim})
    output = output_projection(module, name, output_name(module))
    attention = assembled(name, (query, key, value), output, heads=heads, head_dim=plain_dim)
    down = projection(module, name, "kv_a_proj_with_mqa")
    return replace(
        attention,
        query_latent=_query_latent(module, name, query_path),
        key_value_latent=down.narrow("out", 0, rank, name=dotted(name, "latent"), kind="block"),
        note=NOTE,
    )


def _query_latent(module: nn.Module, name: str, query_path: str) -> Reading | None:
    return projection(module, name, "q_a_proj") if query_path == "q_b_proj" else None


def with_latents(attention: Attention, module: nn.Module) -> Attention:
    """Return the attention with the latents that x-transformers puts before its projections."""
    layers, name = children(module), attention.name
    if not {"to_latent_q", "to_latent_kv"} & layers.keys():
        return attention
    if "to_rotateable_k" in layers:
        raise ValueError(f"attention {name!r}: some key heads do not come from the latent")
    query, key_value = (
        projection(module, name, path) if path in layers else None
        for path in ("to_latent_q", "to_latent_kv")
    )
    return replace(attention, query_latent=query, key_value_latent=key_value, note=NOTE)
