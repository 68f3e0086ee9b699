"""Where the files of a release come from: an in-toto statement with SLSA's provenance, version 1.

https://slsa.dev/spec/v1.0/provenance, https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. It is
signed with the other files of the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from release.home import Home
from release.manifests import IMAGE
from release.version import Checkout

FILE = "provenance.json"
BUILD_TYPE = "urn:netdra:make-release:1"
"""`make release`, as docs/releases.md describes it."""


class ProvenanceError(Exception):
    """A statement cannot be read; the text names the file and the reason."""


def statement(
    subjects: Mapping[str, str],
    checkout: Checkout,
    version: str,
    inputs: Mapping[str, str],
    environment: Mapping[str, str],
    home: Home,
) -> dict[str, Any]:
    """The statement.

    Args:
        subjects: the SHA-256 of each file of the release, and of the image's index.
        checkout: the commit that was built.
        version: netdra's.
        inputs: the SHA-256 of each file that pins downloads.
        environment: of the process; CI of GitHub sets the builder there.
        home: has the address of the sources, if the project has one.
    """
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    public = f"git+{home.source}" if home.source else "urn:netdra:sources"
    source = f"git+{server}/{repository}" if server and repository else public
    run = f"{server}/{repository}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}"
    builder = environment.get("RUNNER_ENVIRONMENT", "") or "machine-of-a-person"
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"source": source, "ref": checkout.tag or checkout.commit, "version": version},
                "resolvedDependencies": [
                    {"uri": source, "digest": {"gitCommit": checkout.commit}},
                    *({"name": name, "digest": {"sha256": digest}} for name, digest in sorted(inputs.items())),
                ],
            },
            "runDetails": {
                "builder": {"id": f"urn:netdra:builder:{builder}"},
                "metadata": {"invocationId": run} if server else {},
            },
        },
    }


def subjects(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file that a release's statement lists; the image is part of its archive.

    Raises:
        ProvenanceError: the statement is missing or has another form.
    """
    path = folder / FILE
    if not path.is_file():
        raise ProvenanceError(f"{path} not found: {folder} is not the folder of a release")
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["subject"]
        found = {str(each["name"]): str(each["digest"]["sha256"]) for each in listed}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ProvenanceError(f"{path}: {type(problem).__name__}: {problem}") from None
    return {name: digest for name, digest in found.items() if name != IMAGE}


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
