"""The folder of a release: what is in it, that it verifies offline, and that anything else in it is found."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from netdra.model import kinds
from release import signatures
from release.changelog import ChangelogError, dated, section
from release.folder import ADDRESSED, ImageFile, ReleaseError, assemble, check_sources
from release.layouts import DIGEST_ANNOTATION
from release.version import ROOT, Checkout
from testbed import yaml
from testbed.image import write_files_image

VERSION = "0.2.0.dev5+g1a2b3c4"
CHECKOUT = Checkout("1a2b3c4d5e6f", "", 5, False)
EPOCH = 1_700_000_000


def made(folder: Path) -> Path:
    """An unsigned release of these sources, with images that only hold a file."""
    images = {}
    for architecture in ("amd64", "arm64"):
        archive = folder / f"{architecture}.oci.tar"
        write_files_image(archive, "localhost/netdra:1", {"/machine": architecture.encode()})
        images[architecture] = ImageFile(archive, b"{}\n")
    assemble(folder / "release", VERSION, CHECKOUT, EPOCH, images)
    return folder / "release"


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("unsigned"))


@pytest.fixture(scope="module")
def signed(unsigned: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed release, and the file of allowed signers that a user has from elsewhere."""
    folder = tmp_path_factory.mktemp("signed")
    shutil.copytree(unsigned, folder / "release")
    signers = new_key(folder / "key")
    signatures.sign(folder / "release", folder / "key")
    return folder / "release", signers


def new_key(path: Path) -> Path:
    """Make a key, and return the file of allowed signers with it."""
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)), check=True)
    public = path.with_name(f"{path.name}.pub").read_text(encoding="utf-8")
    signers = path.with_name(f"{path.name}.signers")
    signers.write_text(f'netdra namespaces="netdra-release" {public}', encoding="utf-8")
    return signers


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_it_has_everything_that_a_user_needs(unsigned: Path) -> None:
    chart = "0.2.0-dev.5+g1a2b3c4"
    assert {path.name for path in unsigned.iterdir()} == {
        "NOTES.md",
        "SHA256SUMS",
        f"cni-plugins-{chart}.tgz",
        f"netdra-{VERSION}-amd64.cdx.json",
        f"netdra-{VERSION}-arm64.cdx.json",
        f"netdra-{VERSION}-crds.yaml",
        f"netdra-{VERSION}-py3-none-any.whl",
        f"netdra-{VERSION}-schemas.yaml",
        f"netdra-{VERSION}.oci.tar",
        f"netdra-{VERSION}.tar.gz",
        f"netdra-{chart}.tgz",
        "provenance.json",
        "requirements-cluster.lock",
    }


def test_of_the_same_commit_it_is_the_same(unsigned: Path, tmp_path: Path) -> None:
    assert (made(tmp_path) / "SHA256SUMS").read_text() == (unsigned / "SHA256SUMS").read_text()


def test_the_wheel_metadata_names_the_source_url_license_and_version(unsigned: Path) -> None:
    with zipfile.ZipFile(unsigned / f"netdra-{VERSION}-py3-none-any.whl") as wheel:
        metadata = wheel.read(f"netdra-{VERSION}.dist-info/METADATA").decode()
    for line in ("Name: netdra", f"Version: {VERSION}", "License-Expression: Apache-2.0", "Provides-Extra: cluster"):
        assert f"\n{line}\n" in metadata
    assert re.search(r"^Project-URL: Source, https://", metadata, re.MULTILINE)
    assert "\nClassifier: Operating System :: POSIX :: Linux\n" in metadata


def test_the_image_is_an_index_of_both_architectures_and_the_charts_name_it(unsigned: Path) -> None:
    with tarfile.open(unsigned / f"netdra-{VERSION}.oci.tar") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert all(hashlib.sha256(blob).hexdigest() == Path(name).name for name, blob in files.items() if "/" in name)
    (top,) = json.loads(files["index.json"])["manifests"]
    assert top["annotations"]["io.containerd.image.name"] == "localhost/netdra:0.2.0.dev5_g1a2b3c4"
    index = json.loads(files[f"blobs/{top['digest'].replace(':', '/')}"])
    assert [manifest["platform"]["architecture"] for manifest in index["manifests"]] == ["amd64", "arm64"]
    assert {f"blobs/{manifest['digest'].replace(':', '/')}" for manifest in index["manifests"]} <= files.keys()
    for name in ("netdra", "cni-plugins"):
        with tarfile.open(unsigned / f"{name}-0.2.0-dev.5+g1a2b3c4.tgz") as archive:
            chart = yaml.safe_load(archive.extractfile(f"{name}/Chart.yaml").read())  # type: ignore[union-attr]
        assert (chart["version"], chart["appVersion"]) == ("0.2.0-dev.5+g1a2b3c4", VERSION)
        assert chart["annotations"] == {DIGEST_ANNOTATION: top["digest"]}


def test_definitions_and_schemas_are_objects(unsigned: Path) -> None:
    definitions = [*yaml.safe_load_all((unsigned / f"netdra-{VERSION}-crds.yaml").read_text())]
    assert {each["metadata"]["name"] for each in definitions} == {kind.name for kind in kinds.KINDS}
    schemas = [*yaml.safe_load_all((unsigned / f"netdra-{VERSION}-schemas.yaml").read_text())]
    assert {each["kind"] for each in schemas} == {"CNIPluginSchema"}
    assert {"bond", "vlan", "macvlan"} <= {each["metadata"]["name"] for each in schemas}


def test_the_provenance_names_every_other_file_and_the_commit(unsigned: Path) -> None:
    statement = json.loads((unsigned / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    files = {path.name: sha256(path) for path in unsigned.iterdir()}
    assert subjects.keys() - files.keys() == {"localhost/netdra"}
    assert files.keys() - subjects.keys() == {"provenance.json", "SHA256SUMS"}
    assert all(files[name] == digest for name, digest in subjects.items() if name in files)
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"] == {"gitCommit": CHECKOUT.commit}
    lock = {"name": "requirements-cluster.lock", "digest": {"sha256": sha256(ROOT / "requirements-cluster.lock")}}
    assert lock in dependencies


def test_it_verifies(signed: tuple[Path, Path]) -> None:
    folder, signers = signed
    assert signatures.verify(folder, signers) == len([*folder.iterdir()]) - 2


def published_commands() -> list[str]:
    """The commands of docs/releases.md, for users without a checkout."""
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    block = page.partition("## Verify a release")[2].partition("```\n")[2].partition("```")[0]
    return block.splitlines()


def published(folder: Path, signers: Path) -> bool:
    """Whether the page's commands succeed in a folder."""
    text = " && ".join(published_commands()).replace("allowed_signers", shlex.quote(str(signers)))
    return subprocess.run(("sh", "-c", text), cwd=folder, capture_output=True).returncode == 0


@pytest.fixture
def copy(signed: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the signed release, for changes."""
    shutil.copytree(signed[0], tmp_path / "release")
    return tmp_path / "release", signed[1]


def test_the_commands_of_the_page_verify_it(copy: tuple[Path, Path]) -> None:
    folder, signers = copy
    assert len(published_commands()) == 2
    assert published(folder, signers)


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz", "netdra-*.tgz", "*.oci.tar", "provenance.json", "*.lock"])
def test_a_changed_file_is_found(copy: tuple[Path, Path], pattern: str) -> None:
    folder, signers = copy
    (path,) = folder.glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(signatures.SignatureError, match=f"{re.escape(path.name)} was changed"):
        signatures.verify(folder, signers)
    assert not published(folder, signers)


def test_checksums_that_were_changed_with_a_file_are_found(copy: tuple[Path, Path]) -> None:
    folder, signers = copy
    (folder / "NOTES.md").write_text("Install this instead.\n")
    signatures.write_sums(folder)
    with pytest.raises(signatures.SignatureError, match=r"ssh-keygen .* verify"):
        signatures.verify(folder, signers)
    assert not published(folder, signers)


def test_a_file_that_is_missing_and_one_that_was_added_are_found(copy: tuple[Path, Path]) -> None:
    folder, signers = copy
    (folder / "NOTES.md").rename(folder / "README.md")
    with pytest.raises(signatures.SignatureError, match=r"NOTES\.md is missing; README\.md is not signed"):
        signatures.verify(folder, signers)
    assert not published(folder, signers)


def test_a_symlink_in_place_of_a_file_fails_verification(copy: tuple[Path, Path], tmp_path: Path) -> None:
    folder, signers = copy
    (folder / "NOTES.md").rename(tmp_path / "NOTES.md")
    (folder / "NOTES.md").symlink_to(tmp_path / "NOTES.md")
    with pytest.raises(signatures.SignatureError, match=r"NOTES\.md was changed"):
        signatures.verify(folder, signers)


def test_a_release_signed_with_another_key_is_rejected(copy: tuple[Path, Path], tmp_path: Path) -> None:
    folder, signers = copy
    new_key(tmp_path / "other")
    signatures.sign(folder, tmp_path / "other")
    with pytest.raises(signatures.SignatureError, match=r"ssh-keygen"):
        signatures.verify(folder, signers)
    assert not published(folder, signers)


def test_a_signature_for_something_else_is_rejected(copy: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = copy
    signers = new_key(tmp_path / "mail")
    (folder / "SHA256SUMS.sig").unlink()
    command = (
        "ssh-keygen",
        "-q",
        "-Y",
        "sign",
        "-f",
        str(tmp_path / "mail"),
        "-n",
        "email",
        str(folder / "SHA256SUMS"),
    )
    subprocess.run(command, capture_output=True, check=True)
    with pytest.raises(signatures.SignatureError, match=r"ssh-keygen"):
        signatures.verify(folder, signers)


def test_a_release_without_a_signature_is_rejected(unsigned: Path, signed: tuple[Path, Path]) -> None:
    with pytest.raises(signatures.SignatureError, match=r"SHA256SUMS\.sig not found: the release is not signed"):
        signatures.verify(unsigned, signed[1])


def test_the_signers_of_the_sources_are_read_by_ssh_keygen(signed: tuple[Path, Path]) -> None:
    with pytest.raises(signatures.SignatureError):
        signatures.verify(signed[0], ROOT / "release" / "allowed_signers")


CHANGELOG = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n"


def test_the_unreleased_section_becomes_the_section_of_a_version() -> None:
    text = dated(CHANGELOG, "0.2.0", "2026-11-27")
    assert text.startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-11-27)\n\n- New.\n\n## 0.1.0")
    assert section(text, "0.2.0") == "- New."
    assert section(text, "0.1.0") == "- Old."
    assert section(text, "") == ""
    with pytest.raises(ChangelogError, match=r'"## 0\.2\.0" already exists'):
        dated(text, "0.2.0", "2026-11-28")
    with pytest.raises(ChangelogError, match=r"nothing is unreleased"):
        dated(text, "0.3.0", "2026-11-28")
    with pytest.raises(ChangelogError, match=r'section not found: "## 0\.3\.0 \(YYYY-MM-DD\)"'):
        section(text, "0.3.0")


def test_a_tagged_release_needs_a_dated_section_addresses_and_a_key(tmp_path: Path) -> None:
    for name in ("CHANGELOG.md", *ADDRESSED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(CHANGELOG if name == "CHANGELOG.md" else "https://netdra.example\n")
    (tmp_path / "release/allowed_signers").write_text("# none\n")
    check_sources(VERSION, tmp_path)
    with pytest.raises(ReleaseError, match=r'CHANGELOG\.md: section not found: "## 0\.2\.0'):
        check_sources("0.2.0", tmp_path)
    for name in ADDRESSED:
        with pytest.raises(ReleaseError, match=rf"{name}: netdra\.example is a placeholder"):
            check_sources("0.1.0", tmp_path)
        (tmp_path / name).write_text("https://example.com\n")
    with pytest.raises(ReleaseError, match=r"allowed_signers: no key"):
        check_sources("0.1.0", tmp_path)
    (tmp_path / "release/allowed_signers").write_text("netdra ssh-ed25519 AAAA\n")
    check_sources("0.1.0", tmp_path)
