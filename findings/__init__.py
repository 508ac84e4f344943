"""The numbers in docs/results.md on what was found where a claim is not met, or only just.

Computed from the runs kept in `results/`: `python -m findings` lists them, `python -m findings Y5`
prints those of one claim. What needs data besides takes `--data FOLDER`.
"""
