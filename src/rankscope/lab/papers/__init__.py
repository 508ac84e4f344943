"""The papers, one file each: `paper(scale) -> Paper`."""
