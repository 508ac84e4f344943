"""Extras: which of them brings a package, and what to type when it is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

LAB = ("huggingface_hub", "PIL", "pyarrow", "sklearn", "soundfile", "tokenizers")
VIEW = ("starlette", "uvicorn")
EXTRAS = {
    **dict.fromkeys(VIEW, "view"),
    **dict.fromkeys(("anywidget", "traitlets"), "notebook"),
    **{name: name for name in ("gguf", "lightning", "ray", "transformers")},
    **dict.fromkeys(LAB, "lab"),
}


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Turn the lack of an extra's package into one sentence with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        extra = EXTRAS.get((missing.name or "").split(".")[0])
        if extra is None:
            raise
        raise ModuleNotFoundError(
            f"{what} needs the package {missing.name}; "
            f"install it with pip install 'rankscope[{extra}]'",
            name=missing.name,
        ) from None
