"""The experiments, one small file each, in one folder per paper."""
