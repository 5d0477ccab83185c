"""Reads the tensors and the configuration of a checkpoint.

A checkpoint is a file of tensors, or a folder: ``model.safetensors``, or several files
and ``model.safetensors.index.json``, which says where each tensor is.  ``config.json``
of the folder says, under ``quantization_config``, how weights are stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from torch import Tensor

from fragmenta.errors import BadFile, Error, nearest, one_of, shortened
from fragmenta.hopper.torch.safetensors import SafeTensors

MODEL, INDEX, CONFIG = (
    "model.safetensors",
    "model.safetensors.index.json",
    "config.json",
)
SUFFIX = ".safetensors"
BITMASK, MARLIN = "sparse-24-bitmask", "marlin-24"
_SPARSE = ("dense", BITMASK)
_QUANTIZED = (
    "dense",
    BITMASK,
    MARLIN,
    *(f"{kind}-quantized" for kind in ("float", "int", "naive")),
)
# Before this version, the scales of groups were written in two different orders.
ORDERED_SCALES = "0.8.0"
# The key is the bits, what shares a scale, and whether the scale is dynamic.
_ACTIVATIONS = {(8, "token", True): "row", (8, "tensor", False): "static"}


class Checkpoint:
    """The tensors of a file or a folder by name, and its configuration.

    >>> import tempfile, torch
    >>> from fragmenta.hopper.torch.safetensors import write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, MODEL), {"weight": torch.ones(2, 2)})
    ...     print(Checkpoint(folder)["weight"].sum(), Checkpoint(folder).config)
    tensor(4.) {}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise BadFile(f"{self.path} does not exist")
        self.folder = self.path if self.path.is_dir() else None
        found = _files(self.folder) if self.folder else {self.path: None}
        self._home: dict[str, SafeTensors] = {}
        for each, names in found.items():
            file = SafeTensors(each)
            _check_listed(file, names)
            for name in file:
                if name in self._home:
                    both = f"{self._home[name].path.name} and {each.name}"
                    raise BadFile(f"tensor {shortened(name)} is in two files: {both}")
                self._home[name] = file

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._home:
            hint = nearest(name, self._home)
            raise BadFile(f"{self.path} has no tensor {shortened(name)}{hint}")
        return self._home[name][name]

    def get(self, name: str) -> Tensor | None:
        """The tensor of this name; None if there is none."""
        return self[name] if name in self._home else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, name: object) -> bool:
        return name in self._home

    # ── how weights are stored ──────────────────────────────────────────────

    @cached_property
    def config(self) -> dict[str, object]:
        """The entry of config.json about stored weights; empty if there is none."""
        path = self.folder and self.folder / CONFIG
        if not path or not path.exists():
            return {}
        found = read_json(path)
        new, old = "quantization_config", "compression_config"
        return self._object(found, new if found.get(new) else old)

    def _object(self, found: dict[str, object], name: str) -> dict[str, object]:
        """An entry of config.json that must be an object; empty if it is missing."""
        given = found.get(name)
        if given is not None and not isinstance(given, dict):
            raise BadFile(
                f"{self.path / CONFIG}: {name} must be an object; given {given!r:.60}"
            )
        return given or {}

    def check_config(self) -> None:
        """Refuse formats and transformations of weights that are not supported here."""
        sparsity = self._object(self.config, "sparsity_config")
        self._check_format(sparsity.get("format"), _SPARSE, "sparsity_config")
        self._check_format(self.config.get("format"), _QUANTIZED, "config")
        if self.config.get("transform_config"):
            raise BadFile(
                f"{self.path / CONFIG} has a transform_config: activations must be "
                "rotated before each layer, which is not done here"
            )

    def _check_format(self, given: object, known: tuple[str, ...], where: str) -> None:
        if given is not None and given not in known:
            raise BadFile(
                f"{self.path / CONFIG}: format {given!r:.40} of {where} is not read; "
                f"formats that are: {one_of(known, 'and')}"
            )

    @cached_property
    def activations(self) -> str:
        """How activations of layers with 8-bit weights are quantised.

        ``row``: each row of x by a scale of its own; ``static``: all by
        ``input_scale``; ``none``: they are not.  Empty if there is no entry about it.
        """
        groups = self._object(self.config, "config_groups")
        found = {self._activations(each) for each in groups.values()}
        if len(found) > 1:
            raise BadFile(
                f"{self.path / CONFIG}: layers quantise their activations in several "
                f"ways, {one_of(sorted(found), 'and')}; only one is read"
            )
        return found.pop() if found else ""

    def _activations(self, group: object) -> str:
        given = self._object({"a group": group}, "a group")
        given = self._object(given, "input_activations")
        if not given:
            return "none"
        how = tuple(given.get(key) for key in ("num_bits", "strategy", "dynamic"))
        if given.get("symmetric", True) is not True:
            raise BadFile(
                f"{self.path / CONFIG}: activations with zero points are not read; "
                f"given symmetric {given['symmetric']}"
            )
        for known, name in _ACTIVATIONS.items():
            if known == how:
                return name
        raise BadFile(
            f"{self.path / CONFIG}: activations are read with 8 bits, and a scale for "
            f"each token that is dynamic, or for a tensor that is not; given {how[0]} "
            f"bits, {how[1]}, dynamic {how[2]}"
        )

    def check_groups(self) -> None:
        """Refuse scales of groups whose order is not known."""
        version = re.match(r"(\d+)\.(\d+)\.(\d+)", str(self.config.get("version", "")))
        if version and tuple(map(int, version.groups())) < _ordered():
            raise BadFile(
                f"{self.path / CONFIG} is of version {version[0]}, which stored the "
                f"scales of groups in a wrong order (in {MARLIN}); only versions since "
                f"{ORDERED_SCALES} are read"
            )


def _ordered() -> tuple[int, ...]:
    return tuple(map(int, ORDERED_SCALES.split(".")))


def dotted(name: str) -> str:
    """The prefix of the names of a module's tensors.

    >>> dotted("mlp.0"), dotted("")
    ('mlp.0.', '')
    """
    return f"{name}." if name else ""


@contextmanager
def about_layer(name: str) -> Iterator[None]:
    """Name the layer in the message of an error."""
    try:
        yield
    except Error as why:
        raise type(why)(f"layer {name or 'itself'}: {why}") from None


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file.

    >>> read_json(Path("no such file"))
    Traceback (most recent call last):
    fragmenta.errors.BadFile: no such file cannot be read: No such file or directory
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as why:
        raise BadFile(f"{path} cannot be read: {why.strerror or why}") from None
    except (ValueError, RecursionError) as why:
        raise BadFile(f"{path} is not JSON: {why}") from None
    if not isinstance(found, dict):
        raise BadFile(f"{path} must be a JSON object; given {found!r:.60}")
    return found


def _files(folder: Path) -> dict[Path, set[str] | None]:
    """The files of a folder, and the tensors that the index says are in each."""
    model, index = folder / MODEL, folder / INDEX
    if model.exists() and index.exists():
        raise BadFile(
            f"{folder} has both {MODEL} and {INDEX}: give the path of the file, or "
            "move one of them away"
        )
    if index.exists():
        return _indexed(index)
    if model.exists():
        return {model: None}
    names = sorted(each.name for each in folder.glob(f"*{SUFFIX}"))
    if len(names) != 1:
        content = f"no {SUFFIX} file"
        if names:
            content = f"{one_of(names, 'and')}, but neither {MODEL} nor {INDEX}"
        raise BadFile(f"{folder} is no checkpoint: it has {content}")
    return {folder / names[0]: None}


def _indexed(index: Path) -> dict[Path, set[str] | None]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadFile(f"{index} must have a weight_map: names of tensors and files")
    found: dict[Path, set[str] | None] = {}
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file:
            raise BadFile(
                f"{index}: tensor {shortened(name)} must be in a file of the same "
                f"folder; given {file!r:.60}"
            )
        names = found.setdefault(index.parent / file, set())
        assert names is not None
        names.add(name)
    return found


def _check_listed(file: SafeTensors, names: set[str] | None) -> None:
    """Refuse an index that names other tensors than its files have."""
    if names is None or names == set(file):
        return
    wrong = sorted(names ^ set(file))
    where = "the index" if wrong[0] in names else file.path.name
    other = file.path.name if wrong[0] in names else "the index"
    raise BadFile(
        f"{INDEX} does not fit {file.path.name}: tensor {shortened(wrong[0])} is in "
        f"{where}, but not in {other} ({len(wrong)} such)"
    )
