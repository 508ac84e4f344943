"""Names of scalars, each of which is a folder of the run."""

# Names in a run's folder that are no arrays.
OTHER_NAMES = {"zarr.json", "reference.safetensors", "dropped"}

LONGEST_NAME = 200  # bytes; file systems allow 255


def check_scalar_name(name: str) -> None:
    """Raise ValueError if `name` cannot be the name of a stored scalar.

    Zarr reads a backslash as a slash, which would make the run unreadable.
    """
    if (
        not name.isprintable()  # no control characters and no half of a surrogate pair
        or not 0 < len(name.encode()) <= LONGEST_NAME
        or any(character in name for character in "/\\")
        or name.startswith((".", "__"))
        or name.endswith(".partial")
        or name in OTHER_NAMES
    ):
        raise ValueError(f"{name!r} cannot name a scalar; use letters, digits, underscores")
