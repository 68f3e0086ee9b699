"""Files for users without Helm: all objects of an installation in one file, and JSON schemas of netdra's kinds.

Called by `release.folder`. The objects are those of `tests/cluster/install/golden.yaml`, which a test compares with
helm's output for the default values; so a release needs no helm.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from release.version import ROOT, chart_version, image_tag, tree_version

RENDERED = Path("tests/cluster/install/golden.yaml")
IMAGE = "localhost/netdra"
_HOOK = "helm.sh/hook"
_OF_HOOKS = frozenset({"netdra-own-trials", "netdra-uninstall"})
"""Admission policies that only restrict the accounts of hooks."""
_KEPT = ("helm.sh/resource-policy", "kustomize.toolkit.fluxcd.io/prune", "argocd.argoproj.io/sync-options")
_HEAD = """\
# netdra {version} with the default values, for kubectl and kustomize: docs/installing.md.
# The image is named {image} with its digest: replace the name by that of your registry.
"""


def install(definitions: str, version: str, digest: str, root: Path = ROOT) -> str:
    """All objects, the namespace first, as YAML.

    Args:
        definitions: the CustomResourceDefinitions, as YAML.
        version: netdra's.
        digest: of the image, `sha256:...`.
        root: the sources.
    """
    import yaml

    tree = tree_version(root)
    text = (root / RENDERED).read_text(encoding="utf-8")
    for old, new in (
        (f"{IMAGE}:{tree}", f"{IMAGE}@{digest}"),
        (f"netdra-{chart_version(tree)}", f"netdra-{chart_version(version).replace('+', '_')}"),
        (f"app.kubernetes.io/version: {tree}", f'app.kubernetes.io/version: "{image_tag(version)}"'),
    ):
        text = text.replace(old, new)
    rendered = [each for each in yaml.safe_load_all(text) if not _is_of_hooks(each["metadata"])]
    kept = next(each for each in rendered if each["kind"] == "Deployment")["metadata"]
    labels = {name: value for name, value in kept["labels"].items() if name != "app.kubernetes.io/component"}
    defined = [_labelled(each, labels) for each in yaml.safe_load_all(definitions)]
    objects = [_namespace(labels), *defined, *rendered]
    return _HEAD.format(version=version, image=IMAGE) + yaml.safe_dump_all(objects, sort_keys=False, width=120)


def _is_of_hooks(metadata: Mapping[str, Any]) -> bool:
    return _HOOK in metadata.get("annotations", {}) or metadata["name"] in _OF_HOOKS


def _namespace(labels: Mapping[str, str]) -> dict[str, Any]:
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    metadata = {"name": "netdra", "labels": privileged | dict(labels), "annotations": _annotations()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _labelled(definition: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = definition["metadata"]
    metadata["labels"] = metadata.get("labels", {}) | dict(labels)
    metadata["annotations"] = metadata.get("annotations", {}) | _annotations()
    return definition


def _annotations() -> dict[str, str]:
    """Tools that delete what a file no longer contains keep these objects: all others are in them."""
    return dict(zip(_KEPT, ("keep", "disabled", "Prune=false,Delete=false"), strict=True))


def json_schemas(definitions: str, epoch: int) -> bytes:
    """A compressed tar with a JSON schema for each version of each kind: `GROUP/KIND_VERSION.json`."""
    import yaml

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, schema in sorted(_schemas(yaml.safe_load_all(definitions))):
            content = json.dumps(schema, indent=1).encode() + b"\n"
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), epoch, 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=epoch)


def _schemas(definitions: Iterator[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for definition in definitions:
        spec = definition["spec"]
        group, kind = spec["group"], spec["names"]["kind"]
        for version in spec["versions"]:
            schema = _json_schema(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {
                "apiVersion": {"type": "string", "const": f"{group}/{version['name']}"},
                "kind": {"type": "string", "const": kind},
            }
            schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata"})
            head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": kind}
            yield f"{group}/{kind.lower()}_{version['name']}.json", head | schema


def _json_schema(schema: Any) -> Any:
    """A schema of the API server as JSON schema: closed objects, numbers or texts, and no words of Kubernetes."""
    if isinstance(schema, list):
        return [_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _json_schema(value) for name, value in schema.items() if not name.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string") is True:
        made["type"] = ["integer", "string"]
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
        if not is_open:
            made["additionalProperties"] = False
    if schema.get("nullable") is True and isinstance(made.get("type"), str):
        made.pop("nullable")
        made["type"] = [made["type"], "null"]
    return made
