"""What makes two cells the same one: a hash over all that decides its figures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from kvbench.errors import TraceError, reason
from kvbench.plugins import own_version
from kvbench.results.result import RESULT_VERSION
from kvbench.sweeps.plan import parts_of
from kvbench.trace.schema import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbench.plugins import Registry
    from kvbench.specs import Spec

FILES = ("model", "models", "devices", "faults")
"""Settings that may name files, whose contents count and not their names."""


class CellHasher:
    """Hashes the cells of one sweep; each file is read once.

    ``trace``  path of the trace: its bytes are part of every hash, its name of none.
    """

    def __init__(self, trace: str, registry: Registry) -> None:
        try:
            self.trace_digest = file_digest(Path(trace))
        except OSError as error:
            raise TraceError(f"{trace}: cannot be read: {reason(error)}") from None
        self._registry = registry
        self._digest_of = cache(_digest_of_setting)
        self._distributions: dict[tuple[type[Spec], str], tuple[str, str] | None] = {}

    def config_hash(self, settings: Mapping[str, Any]) -> str:
        """BLAKE3, in hexadecimal, over the versions of results, kvbench and the plugins in use, the contents of the
        trace and of other files, and the settings."""
        files = {name: self._digest_of(str(settings[name])) for name in FILES if settings.get(name) is not None}
        parts = self._files_of_parts(settings)
        content = {
            "version": RESULT_VERSION,
            "kvbench": own_version(),
            "plugins": self.plugins(settings),
            "trace": self.trace_digest,
            "settings": {**settings, **files},
            **({"files": parts} if parts else {}),
        }
        return blake3(canonical_json(content).encode()).hexdigest()

    def _files_of_parts(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """The contents of files that parameters of parts name, as those of the compute model ``table`` do."""
        texts = {value for _, _, params in parts_of(settings) for value in params.values() if isinstance(value, str)}
        found = {text: self._digest_of(text) for text in sorted(texts)}
        return {text: digest for text, digest in found.items() if digest != text}

    def plugins(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Versions of the distributions, other than kvbench, whose parts the settings name."""
        found = {self._distribution(kind, name) for kind, name, _ in parts_of(settings)}
        return dict(sorted(each for each in found if each is not None))

    def _distribution(self, kind: type[Spec], name: str) -> tuple[str, str] | None:
        if (kind, name) not in self._distributions:
            found = self._registry.distribution(self._registry.get(kind, name))
            self._distributions[kind, name] = None if found.name == "kvbench" else (found.name, found.version)
        return self._distributions[kind, name]


def file_digest(path: Path) -> str:
    """``blake3:`` and the hash of a file's bytes, which are mapped and not copied. Raises OSError."""
    if path.stat().st_size == 0:
        return f"blake3:{blake3().hexdigest()}"  # what is empty cannot be mapped
    return f"blake3:{blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()}"


def _digest_of_setting(value: str) -> str:
    """Of the file that a setting names; the value itself where it names none, as a preset's name does."""
    path = Path(value)
    file = path / "config.json" if path.is_dir() else path
    return file_digest(file) if file.is_file() else value
