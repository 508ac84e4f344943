"""Matrices of a network, read by name from a model or a state dict."""

from rankscope.matrices.attention import Attention as Attention
from rankscope.matrices.attention import fused_attention as fused_attention
from rankscope.matrices.attention import separate_attention as separate_attention
from rankscope.matrices.collect import Views as Views
from rankscope.matrices.collect import products as products
from rankscope.matrices.collect import views as views
from rankscope.matrices.coverage import Coverage as Coverage
from rankscope.matrices.coverage import Covered as Covered
from rankscope.matrices.manifest import Manifest as Manifest
from rankscope.matrices.model import attentions as attentions
from rankscope.matrices.model import manifest as manifest
from rankscope.matrices.product import Product as Product
from rankscope.matrices.product import ProductReading as ProductReading
from rankscope.matrices.product import product_change as product_change
from rankscope.matrices.reading import Axes as Axes
from rankscope.matrices.reading import Reading as Reading
from rankscope.matrices.reading import View as View
from rankscope.matrices.recognition import attention_rule as attention_rule
from rankscope.matrices.rules import view_rule as view_rule
from rankscope.matrices.verification import Verification as Verification
from rankscope.matrices.verification import Verified as Verified
from rankscope.matrices.wrappers import full_tensor as full_tensor
from rankscope.matrices.wrappers import named_tensors as named_tensors
from rankscope.matrices.wrappers import state_dict_tensors as state_dict_tensors
from rankscope.matrices.wrappers import strip_wrappers as strip_wrappers
from rankscope.matrices.wrappers import unwrap as unwrap
