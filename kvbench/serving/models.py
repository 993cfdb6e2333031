"""Models by name: the presets of ``models.toml``, a user's own files of the same form, and ``config.json`` files."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.errors import ConfigError, reason
from kvbench.plugins import did_you_mean
from kvbench.serving.kvsize import KvLayout, KvShape, StateShape, parse_dtype
from kvbench.serving.weights import Decoder, WeightShape

if TYPE_CHECKING:
    from collections.abc import Iterable

PRESETS = "models.toml"


class StateEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table ``state`` of a model: see :class:`kvbench.serving.kvsize.StateShape`."""

    layers: int
    heads: int
    head_dim: int
    state_dim: int
    conv_kernel: int
    groups: int = 0
    dtype: str = "bf16"


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a file of models.

    ``layers``  attention layers, of which ``window_layers`` keep the last ``window`` tokens only.
    The other keys are those of :class:`kvbench.serving.kvsize.KvShape`; ``repo`` is a second name.
    """

    layers: int
    dtype: str
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int | None = None
    latent_dim: int = 0
    rope_dim: int = 0
    window_layers: int = 0
    window: int | None = None
    fixed_bytes: int = 0
    state: StateEntry | None = None
    weights: WeightShape | None = None
    repo: str = ""
    source: str = ""
    notes: list[str] = []


def load_models(models_file: Path | None = None) -> dict[str, KvShape]:
    """All models by lower-case name, in the order of their files: the presets, and over them those of
    ``models_file``. A model whose ``repo`` is given goes by that name, too.

    Raises ConfigError for a file that cannot be read or breaks a rule.
    """
    named = _entries(files("kvbench.serving").joinpath(PRESETS).read_text(encoding="utf-8"), PRESETS)
    if models_file is not None:
        try:
            text = models_file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"--models {models_file}: cannot be read: {reason(error)}") from None
        own = _entries(text, f"--models {models_file}")
        spelled = {name.lower() for name in own}
        named = {name: pair for name, pair in named.items() if name.lower() not in spelled} | own
    models: dict[str, KvShape] = {}
    for shape, repo in named.values():
        models[shape.name.lower()] = shape
        if repo:
            models[repo.lower()] = shape
    return models


def model_names(models: dict[str, KvShape]) -> list[str]:
    """The names of ``models`` as they are spelled, each once."""
    return list(dict.fromkeys(shape.name for shape in models.values()))


def find_shape(model: str, models_file: Path | None = None, dtype: str | None = None) -> KvShape:
    """The shape of ``model``: the name of a preset or of a model of ``models_file``, in any case of
    letters; else the path of a ``config.json`` or of the folder that holds one.

    ``dtype``  of the KV, instead of what a ``config.json`` says; a preset keeps its own.

    Raises ConfigError for a name that is neither.
    """
    models = load_models(models_file)
    known = models.get(model.lower())
    if known is not None:
        return known
    path = Path(model)
    if path.suffix == ".json" or path.exists():
        from kvbench.serving.hfconfig import read_config

        return read_config(path, dtype)
    raise ConfigError(
        f"unknown model {model!r}: neither a preset nor the path of a config.json; "
        f"{did_you_mean(model, model_names(models))}"
    )


def find_decoder(model: str, models_file: Path | None = None) -> Decoder:
    """The matrices of ``model`` (see :func:`find_shape`) and what it keeps.

    Raises ConfigError for one whose widths are not known.
    """
    return decoder_of(find_shape(model, models_file))


def decoder_of(shape: KvShape) -> Decoder:
    """The matrices of the model of ``shape``. Raises ConfigError if their widths are not known."""
    if shape.weights is None:
        raise ConfigError(
            f"{shape.name}: the widths of its matrices are not known; give them in a table weights (--models)"
        )
    return Decoder(shape, shape.weights)


def kv_layout(
    model: str,
    tp: int = 1,
    dtype: str | None = None,
    models_file: Path | None = None,
    save_only_first_rank: bool = False,
    *,
    scale_bytes: int = 0,
) -> KvLayout:
    """The KV of ``model`` (see :func:`find_shape`) over the ``tp`` ranks of one worker.

    ``dtype``                 of the KV, instead of the model's.
    ``save_only_first_rank``  a model with MLA stores its latent vectors once instead of on each rank.
    ``scale_bytes``           of the scales beside each quantized vector.

    >>> kv_layout("Llama-3.1-8B", tp=8).block_bytes(64)
    8388608
    """
    shape = find_shape(model, models_file, dtype).with_dtype(dtype, scale_bytes)
    return KvLayout(shape, tp, save_only_first_rank)


def _entries(text: str, where: str) -> dict[str, tuple[KvShape, str]]:
    """Shape and repository by name as it is spelled."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from None
    models = tables.pop("models", {})
    if tables or not isinstance(models, dict):
        stray = next(iter(tables), "models")
        raise ConfigError(f'{where}: unknown key {stray!r}; write a table [models."NAME"] for each model')
    return {name: _entry(name, table, f'{where}, [models."{name}"]') for name, table in models.items()}


def _entry(name: str, table: Any, where: str) -> tuple[KvShape, str]:
    try:
        entry = msgspec.convert(table, ModelEntry)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    _check_counts(entry, where)
    dtype = parse_dtype(entry.dtype, f"{where}: dtype")
    state = None
    if entry.state is not None:
        fields = msgspec.structs.asdict(entry.state)
        state = StateShape(**fields | {"dtype": parse_dtype(entry.state.dtype, f"{where}: state.dtype")})
    weights = None if entry.weights is None else _weights(entry.weights, f"{where}: weights")
    shape = KvShape(
        name=name,
        full_layers=entry.layers - entry.window_layers,
        window_layers=entry.window_layers,
        window=entry.window,
        kv_heads=entry.kv_heads,
        head_dim=entry.head_dim,
        value_dim=entry.value_dim,
        latent_dim=entry.latent_dim,
        rope_dim=entry.rope_dim,
        dtype=dtype,
        state=state,
        fixed_bytes=entry.fixed_bytes,
        source=entry.source or (f"https://huggingface.co/{entry.repo}/blob/main/config.json" if entry.repo else where),
        notes=tuple(entry.notes),
        weights=weights,
    )
    return shape, entry.repo


def _weights(entry: WeightShape, where: str) -> WeightShape:
    _no_negative(where, msgspec.structs.asdict(entry).items())
    dtypes = {key: getattr(entry, key) for key in ("dtype", "expert_dtype")}
    named = {key: parse_dtype(dtype, f"{where}.{key}") for key, dtype in dtypes.items() if dtype is not None}
    weights = msgspec.structs.replace(entry, **named)
    weights.check(where)
    return weights


def _check_counts(entry: ModelEntry, where: str) -> None:
    _no_negative(where, msgspec.structs.asdict(entry).items())
    if entry.state is not None:
        _no_negative(f"{where}: state", msgspec.structs.asdict(entry.state).items())
    if entry.window_layers > entry.layers:
        raise ConfigError(f"{where}: window_layers = {entry.window_layers} is more than layers = {entry.layers}")
    if (entry.window_layers > 0) != bool(entry.window):
        raise ConfigError(f"{where}: window_layers and window come together; give both, or leave both out")
    heads = entry.kv_heads > 0 and entry.head_dim > 0
    if entry.layers and heads == (entry.latent_dim > 0):
        raise ConfigError(f"{where}: give either kv_heads and head_dim, or latent_dim and rope_dim (MLA)")


def _no_negative(where: str, fields: Iterable[tuple[str, Any]]) -> None:
    for key, value in fields:
        if isinstance(value, int) and value < 0:
            raise ConfigError(f"{where}: {key} = {value} must not be negative")
