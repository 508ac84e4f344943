"""Low-rank adapters: how many directions a change needs, from checkpoints and adapters on disk."""

from rankscope.lora.adapter import Adapter as Adapter
from rankscope.lora.adapter import open_adapter as open_adapter
from rankscope.lora.ranks import choose_ranks as choose_ranks
from rankscope.lora.resize import Resized as Resized
from rankscope.lora.resize import resize as resize
from rankscope.lora.spectrum import Spectrum as Spectrum
