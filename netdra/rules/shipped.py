"""The built-in plugin schemas, as contracts: `schemas/<type>.yaml` of this package.

A program that has the name of a built-in type has `schemas/<type>-binary.yaml` (decision D28).

The one place of `netdra.rules` that reads files: package data, which changes no more than code does, and only the
schemas that are asked for. Called at the edges (command line, webhook, controller), which put the cluster's own schemas
over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from netdra.model import documents
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import described
from netdra.rules.contract import Contract, compile_schema

_PROGRAM = "-binary"
_SCHEMAS = Path(__file__).with_name("schemas")  # importlib.resources would import zipfile and tempfile, for 4 ms


@cache
def names() -> tuple[str, ...]:
    """The plugins that a schema is shipped for, as steps are looked up (`netdra.model.topology.Step.plugin`)."""
    return tuple(sorted(_files()))


def types() -> frozenset[str]:
    """The types of the plugins that a schema is shipped for."""
    return frozenset(stem.removesuffix(_PROGRAM) for stem in _files().values())


def of_type(kind: str) -> tuple[Contract, ...]:
    """The contracts that are shipped for a type: for netdra's own step, and for the program."""
    plugins = dict.fromkeys(described(kind, is_builtin=builtin) for builtin in (True, False))
    return tuple(contracts(plugins).values())


@cache
def _files() -> dict[str, str]:
    """The file of each schema, by plugin."""
    stems = (path.stem for path in _SCHEMAS.iterdir() if path.suffix == ".yaml")
    return {described(stem.removesuffix(_PROGRAM), is_builtin=not stem.endswith(_PROGRAM)): stem for stem in stems}


def load_all() -> None:
    """Read all of them, for a process that can open no files later."""
    contracts(names())


@cache
def schema(plugin: str) -> CNIPluginSchema | None:
    """The schema that is shipped for a plugin, or None."""
    file = _files().get(plugin)
    if file is None:
        return None
    text = (_SCHEMAS / f"{file}.yaml").read_text(encoding="utf-8")
    (document,) = documents.read(text, f"schemas/{file}.yaml")
    assert isinstance(document, CNIPluginSchema)
    return document


def own_of(schemas: Iterable[CNIPluginSchema]) -> Iterator[CNIPluginSchema]:
    """The schemas of a cluster that count: its administrators' and vendors' (decision D35).

    Objects in which a former version of netdra showed its own do not.
    """
    return (entry for entry in schemas if not entry.is_shipped)


def contracts(plugins: Iterable[str], own: Iterable[CNIPluginSchema] = ()) -> dict[str, Contract]:
    """The contracts of plugins, by plugin: the user's own schema where there is one, else the shipped one.

    Of several schemas for one plugin, the first by name counts.

    Raises:
        InvalidInputError: one of the user's schemas contradicts itself.
    """
    wanted = set(plugins)
    by_plugin = {plugin: document for plugin in wanted if (document := schema(plugin)) is not None}
    for entry in sorted(own_of(own), key=lambda schema: schema.metadata.name, reverse=True):
        if entry.spec.plugin in wanted:
            by_plugin[entry.spec.plugin] = entry
    return {
        plugin: _shipped(plugin) if document is schema(plugin) else compile_schema(document)
        for plugin, document in by_plugin.items()
    }


@cache
def _shipped(plugin: str) -> Contract:
    contract_schema = schema(plugin)
    assert contract_schema is not None
    return compile_schema(contract_schema)
