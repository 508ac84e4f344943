"""Models on the Hugging Face hub: tensors by range request, nothing else is downloaded.

The library's own settings count: HF_ENDPOINT is the address of the hub, HF_HUB_DOWNLOAD_TIMEOUT the
seconds without an answer. With HF_HUB_OFFLINE the library's cache is read instead.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from rankscope.checkpoints.folders import CONFIGURATIONS, WEIGHTS
from rankscope.extras import install_command

HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")
MOST_WINDOW = 2**16  # bytes fetched at a time while a header is read
TRIES = 4  # for one tensor
PAUSE = 0.5  # seconds before the second try; more before later ones


def hub_id(path: str) -> tuple[str, str | None] | None:
    """Return repository and revision of a name such as "org/model@step1000", or None."""
    match = HUB_ID.fullmatch(path)
    if match is None or match["repo"].endswith(WEIGHTS):
        return None
    return match["repo"], match["revision"]


@dataclass(frozen=True, eq=False)
class HubFile:
    """A file on the hub, of one commit, read by range requests."""

    repo: str
    file: str
    commit: str
    size: int
    _window: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @property
    def name(self) -> str:
        return f"{self.file} of {self.repo}"

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer; short reads, which are those of headers, share a window."""
        if len(buffer) > MOST_WINDOW:
            self._fetch(buffer, offset)
            return
        with self._lock:
            for start, data in self._window:
                if start <= offset and offset + len(buffer) <= start + len(data):
                    buffer[:] = data[offset - start : offset - start + len(buffer)]
                    return
            window = bytearray(min(MOST_WINDOW, self.size - offset))
            self._fetch(memoryview(window), offset)
            self._window[:] = [(offset, bytes(window))]
            buffer[:] = window[: len(buffer)]

    def _fetch(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer by a range request; what a broken connection lacks is asked for again."""
        position, reason = 0, ""
        for attempt in range(TRIES):
            if position == len(buffer):
                return
            time.sleep(PAUSE * (2**attempt - 1))
            try:
                for piece in self._pieces(offset + position, len(buffer) - position):
                    buffer[position : position + len(piece)] = piece
                    position += len(piece)
                reason = "the answer was cut short"
            except Exception as error:  # each version of the library has another client's errors
                if _is_final(error):
                    reason = _refusal(self.repo, error) or f"it cannot be read ({_shown(error)})"
                    raise ValueError(f"{self.name}: {reason}") from None
                reason = _shown(error)
        if position < len(buffer):
            raise ValueError(
                f"the hub sent {position} of {len(buffer)} bytes of {self.name} in {TRIES} tries "
                f"({reason}); run it again"
            )

    def _pieces(self, offset: int, count: int) -> Iterator[bytes]:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

        headers = build_hf_headers()
        headers |= {"Range": f"bytes={offset}-{offset + count - 1}", "Accept-Encoding": "identity"}
        url = hf_hub_url(self.repo, self.file, revision=self.commit)
        seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
        options: dict[str, Any] = {"headers": headers, "timeout": seconds, "follow_redirects": True}
        with get_session().stream("GET", url, **options) as answer:
            answer.raise_for_status()
            if answer.status_code != 206:
                raise _Refused("the hub does not answer range requests for it")
            for piece in answer.iter_raw():
                count -= len(piece)
                if count < 0:
                    raise _Refused("the hub sent more than was asked for")
                yield piece


class _Refused(Exception):
    """An answer that would be the same if it was asked for again."""


def _is_final(error: Exception) -> bool:
    """Tell whether another try has no use: the hub has understood the request and refused it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return refused or isinstance(error, _Refused)


def _refusal(repo: str, error: Exception) -> str:
    """Return what the hub refuses and what to do about it; empty if it does not say."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    code = None if response is None else response.headers.get("X-Error-Code")
    if code == "GatedRepo":
        return (
            f"you have not accepted the hub's terms for {repo!r}; accept them on its page and log "
            "in by `hf auth login`"
        )
    if code == "RevisionNotFound":
        return f"{repo!r} has no such revision on the hub; look at the branches on its page"
    if code == "RepoNotFound" or status in (401, 403):
        return (
            f"{repo!r} is neither a path here nor a model on the hub that you may read; check the "
            "name, or log in by `hf auth login`"
        )
    return ""


def _shown(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


@dataclass(frozen=True)
class HubFolder:
    """The files of a repository at one commit, with their sizes."""

    repo: str
    commit: str
    sizes: dict[str, int]

    @classmethod
    def at(cls, repo: str, revision: str | None) -> "HubFolder":
        """Ask the hub for the files of a repository."""
        try:
            from huggingface_hub import HfApi, constants
        except ModuleNotFoundError:
            raise ValueError(
                f"{repo!r} does not exist here; if it is a model on the hub, install what reads it "
                f"with {install_command('lab')}"
            ) from None

        try:
            seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
            info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=seconds)
        except Exception as error:  # each version of the library has another client's errors
            reason = _refusal(repo, error) or (
                f"{repo!r} does not exist here, and cannot be read from the hub ({_shown(error)})"
            )
            raise ValueError(reason) from None
        files = info.siblings or []
        sizes = {file.rfilename: file.size for file in files if file.size is not None}
        if info.sha is None:
            raise ValueError(f"the hub does not name the commit of {repo!r}")
        return cls(repo, info.sha, sizes)

    def open(self, name: str) -> HubFile:
        """Return a file of the repository; ValueError if it has none of that name."""
        if name not in self.sizes:
            raise ValueError(f"{self.repo} has no file {name[:80]!r}")
        return HubFile(self.repo, name, self.commit, self.sizes[name])

    @property
    def names(self) -> list[str]:
        """Names of the files that lie in no folder of the repository."""
        return sorted(name for name in self.sizes if "/" not in name)

    def configurations(self) -> Iterator[tuple[str, HubFile]]:
        """Yield the JSON configurations by name."""
        for name in CONFIGURATIONS:
            if f"{name}.json" in self.sizes:
                yield name, self.open(f"{name}.json")


def cached(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a repository in the library's cache, in offline mode; else None."""
    try:
        from huggingface_hub import is_offline_mode, snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError:
        return None
    if not is_offline_mode():
        return None
    try:
        return Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        raise ValueError(
            f"{repo!r} does not exist here nor, at this revision, in the hub's cache, and the hub "
            "is not asked in offline mode; unset HF_HUB_OFFLINE"
        ) from None
