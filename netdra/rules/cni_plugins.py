"""A CNIPlugin before any node installs it: the errors that its DaemonSet or its schema would cause. Pure.

Called by `netdra validate`. The API server accepts these objects, and only their status reports the errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from netdra.model import metadata_rules, names, suggestions
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.findings import Finding, Path
from netdra.model.meta import ObjectMeta
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import described
from netdra.rules.config import mistyped
from netdra.rules.contract import examine

_OPERATORS = ("Exists", "Equal")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FIELDS = ("key", "operator", "value", "effect", "tolerationSeconds")


def check_plugin(plugin: CNIPlugin) -> Iterator[Finding]:
    """The errors in a plugin beyond its kind's definition."""
    named = f'CNIPlugin "{plugin.name}"'
    for finding in (*_nodes(plugin), *_schema(plugin)):
        yield msgspec.structs.replace(finding, what=f"{named}: {finding.what}")


def _nodes(plugin: CNIPlugin) -> Iterator[Finding]:
    spec = plugin.spec
    yield from metadata_rules.label_findings(spec.node_selector, ("spec", "nodeSelector"))
    for at, secret in enumerate(spec.image_pull_secrets):
        if not names.is_subdomain(secret):
            rule = "a Secret's name is up to 253 of a-z, 0-9, - and ., letters or digits at both ends"
            place: Path = ("spec", "imagePullSecrets", at)
            yield Finding(f'pull secret "{ascii(secret[:80])[1:-1]}" is not valid', rule, place, code="ND1028")
    for at, toleration in enumerate(spec.tolerations or ()):
        yield from _toleration(toleration, ("spec", "tolerations", at))


def _toleration(value: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Follows ValidateTolerations of k8s.io/kubernetes (pkg/apis/core/validation)."""
    for field in value:
        if field not in _FIELDS:
            hint = suggestions.hint(str(field), _FIELDS, "fields:")
            yield Finding(f'unknown field "{ascii(str(field)[:80])[1:-1]}"', hint, (*path, str(field)), code="ND1029")
    key, operator, effect = value.get("key"), value.get("operator"), value.get("effect")
    if key and not (isinstance(key, str) and names.is_label_key(key)):
        yield Finding(
            f"key {key!r} of a toleration is not valid", metadata_rules.KEY_RULE, (*path, "key"), code="ND1030"
        )
    for field, given, known in (("operator", operator, _OPERATORS), ("effect", effect, _EFFECTS)):
        if given and given not in known:
            hint = suggestions.hint(str(given), known, "supported:")
            what = f'{field} "{ascii(str(given)[:80])[1:-1]}" of a toleration is not supported'
            yield Finding(what, hint, (*path, field), code="ND1031")
    if operator == "Exists" and value.get("value"):
        what = "a toleration with operator Exists must not have a value"
        yield Finding(what, "remove the value, or write operator: Equal", (*path, "value"), code="ND1032")
    if not key and operator != "Exists":
        yield Finding(
            "a toleration without a key must have operator Exists", "add the key of a taint", path, code="ND1033"
        )


def _schema(plugin: CNIPlugin) -> Iterator[Finding]:
    if plugin.spec.schema is None:
        return
    schema = CNIPluginSchema(
        metadata=ObjectMeta(name=plugin.name),
        spec=plugin.spec.schema,
        api_version="cni.networking.k8s.io/v1alpha1",
        kind="CNIPluginSchema",
    )
    expected = described(plugin.name, is_builtin=False)
    if schema.spec.plugin != expected:
        what = f'its schema describes "{schema.spec.plugin}", but the plugin is "{expected}"'
        hint = f"set cniType to {plugin.name}, and execution: Binary if netdra has that type built in"
        yield Finding(what, hint, ("spec", "schema", "cniType"), code="ND1034")
    _, wrong = examine(schema)
    for finding in wrong or mistyped(schema):
        what = finding.what.partition(": ")[2]
        yield Finding(f"schema: {what}", finding.hint, ("spec", "schema", *finding.path[1:]), code=finding.code)
