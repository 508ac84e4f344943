"""Check in a forward pass that attention heads are what they were read as."""

from rankscope.verification.verify import verified_manifest as verified_manifest
from rankscope.verification.verify import verify as verify
