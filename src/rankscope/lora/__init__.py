"""Low-rank adapters: how many directions a change needs, from checkpoints and adapters on disk."""

from rankscope.lora.adapter import Adapter as Adapter
from rankscope.lora.adapter import open_adapter as open_adapter
from rankscope.lora.changes import changes as changes
from rankscope.lora.compare import difference_of as difference_of
from rankscope.lora.compare import intruders as intruders
from rankscope.lora.compare import used_directions as used_directions
from rankscope.lora.extract import Extraction as Extraction
from rankscope.lora.extract import extract as extract
from rankscope.lora.growth import growth as growth
from rankscope.lora.merge import Merged as Merged
from rankscope.lora.merge import merge as merge
from rankscope.lora.new_training import peft_config as peft_config
from rankscope.lora.planning import plan as plan
from rankscope.lora.ranks import choose_ranks as choose_ranks
from rankscope.lora.resize import Resized as Resized
from rankscope.lora.resize import resize as resize
from rankscope.lora.spectrum import Spectrum as Spectrum
