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


def install_command(extra: str) -> str:
    """Return what to type to install an extra, from an index or in a clone."""
    return f"pip install 'rankscope[{extra}]', or '.[{extra}]' in a clone"


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
            f"{what} needs the package {missing.name}; install it with {install_command(extra)}",
            name=missing.name,
        ) from None
