"""The folder of a release: what is in it, that it verifies offline, and that anything else in it is found."""

from __future__ import annotations

import base64
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
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import release.__main__
from netdra.model import kinds
from release import signatures
from release.changelog import ChangelogError, dated, section
from release.folder import ImageFile, ReleaseError, assemble, check_sources, linked
from release.home import FILE, read
from release.layouts import DIGEST_ANNOTATION, pack_chart
from release.version import ROOT, Checkout, tree_version
from testbed import yaml
from testbed.image import write_files_image
from tests.unit.release.test_home import EMPTY, FILLED, filled

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
    (folder / "site" / ".doctrees").mkdir(parents=True)
    for name in ("index.html", ".doctrees/index"):
        (folder / "site" / name).write_text("<p>A page</p>", encoding="utf-8")
    assemble(folder / "release", VERSION, CHECKOUT, EPOCH, images, folder / "site")
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
    home = filled(folder / "home", FILLED.replace('"ssh-ed25519 AAAA ada"', f'"{public_half(folder / "key")}"'))
    signatures.sign_release(folder / "release", folder / "key", home, EPOCH)
    return folder / "release", signers


def public_half(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text(encoding="utf-8").strip()


def new_key(path: Path) -> Path:
    """Make a key, and return the file of allowed signers with it."""
    public = signatures.make_key(path, "a maintainer", "")
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
        "install.yaml",
        f"cni-plugins-{chart}.tgz",
        f"netdra-{VERSION}-amd64.cdx.json",
        f"netdra-{VERSION}-arm64.cdx.json",
        f"netdra-{VERSION}-crds.yaml",
        f"netdra-{VERSION}-json-schemas.tar.gz",
        f"netdra-{VERSION}-py3-none-any.whl",
        f"netdra-{VERSION}-schemas.yaml",
        f"netdra-{VERSION}-site.tar.gz",
        f"netdra-{VERSION}.oci.tar",
        f"netdra-{VERSION}.openvex.json",
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
    assert re.findall(r"^Project-URL: Source, (.*)$", metadata, re.MULTILINE) == [
        each for each in [read().source] if each
    ]
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


def compared(folder: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `python3 -m release compare`."""
    monkeypatch.setattr(release.__main__, "OUTPUT", built)
    monkeypatch.setattr("sys.argv", ["release", "compare", str(folder)])
    return release.__main__.main()


def test_a_build_of_the_same_commit_has_the_files_of_a_release_with_any_signature(
    unsigned: Path, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(signed[0], unsigned, monkeypatch) == 0
    number = len(json.loads((unsigned / "provenance.json").read_text())["subject"]) - 1
    assert capsys.readouterr().out == f"{unsigned}: {number} of {number} files are those of {signed[0]}\n"


def test_a_changed_and_a_missing_file_of_a_build_are_named(
    unsigned: Path,
    signed: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(unsigned, tmp_path / "built")
    (tmp_path / "built" / "install.yaml").write_text("other")
    (tmp_path / "built" / "NOTES.md").unlink()
    assert compared(signed[0], tmp_path / "built", monkeypatch) == 1
    assert [line.partition(" differs")[0] for line in capsys.readouterr().out.splitlines()[:-1]] == [
        "NOTES.md",
        "install.yaml",
    ]


def test_a_folder_that_is_no_release_s_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(tmp_path, tmp_path, monkeypatch) == 1
    text = f"release: {tmp_path / 'provenance.json'} not found: {tmp_path} is not the folder of a release\n"
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("text", ["", "[]", '{"subject": [{}]}', '{"subject": 1}'])
def test_a_statement_of_another_form_is_an_error(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "provenance.json").write_text(text)
    assert compared(tmp_path, tmp_path, monkeypatch) == 1
    assert f"release: {tmp_path / 'provenance.json'}: " in capsys.readouterr().err


def test_it_verifies(signed: tuple[Path, Path]) -> None:
    folder, signers = signed
    assert signatures.verify(folder, signers) == len([*folder.iterdir()]) - 3


def test_the_public_halves_are_in_the_folder_and_its_checksums(signed: tuple[Path, Path]) -> None:
    folder, signers = signed
    assert signatures.verify(folder, folder / "allowed_signers") == signatures.verify(folder, signers)
    for name in ("allowed_signers", "netdra.pem", "netdra.gpg", "install.yaml"):
        assert f"  {name}\n" in (folder / "SHA256SUMS").read_text()


def test_the_checksums_have_a_signature_on_p256_as_cosign_reads_it(signed: tuple[Path, Path]) -> None:
    folder, _ = signed
    key = serialization.load_pem_public_key((folder / "netdra.pem").read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    signature = base64.b64decode((folder / "SHA256SUMS.cosign").read_text())
    key.verify(signature, (folder / "SHA256SUMS").read_bytes(), ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        key.verify(signature, b"other", ec.ECDSA(hashes.SHA256()))


def test_each_chart_has_the_provenance_that_helm_reads(signed: tuple[Path, Path]) -> None:
    folder, _ = signed
    charts = sorted(folder.glob("*-0.2.0-*.tgz"))
    assert len(charts) == 2
    for chart in charts:
        text = chart.with_name(f"{chart.name}.prov").read_text()
        message = text.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE-----")[0]
        metadata, _, sums = message.partition("\n...\n")
        assert yaml.safe_load(metadata)["name"] == chart.name.partition("-0.2.0")[0]
        assert yaml.safe_load(sums) == {"files": {chart.name: f"sha256:{sha256(chart)}"}}


def test_with_one_key_all_files_but_the_signature_of_ssh_keygen_are_the_same(
    unsigned: Path, signed: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, signers = signed
    shutil.copytree(unsigned, tmp_path / "release")
    home = read(signers.parent / "home")
    signatures.sign_release(tmp_path / "release", signers.with_name("key"), home, EPOCH)
    for path in sorted(folder.iterdir()):
        if path.name != signatures.SIGNATURE:
            assert path.read_bytes() == (tmp_path / "release" / path.name).read_bytes(), path.name


def test_a_release_for_its_builder_verifies_by_the_page_in_its_folder_alone(unsigned: Path, tmp_path: Path) -> None:
    shutil.copytree(unsigned, tmp_path / "release")
    signatures.make_key(tmp_path / "key", "local", "")
    empty = filled(tmp_path / "home", EMPTY)
    signatures.sign_release(tmp_path / "release", tmp_path / "key", empty, EPOCH, local=True)
    (tmp_path / "release").rename(tmp_path / "elsewhere")
    (tmp_path / "key").unlink()
    assert published(tmp_path / "elsewhere", Path("allowed_signers"))


def test_without_local_a_key_that_the_home_does_not_name_does_not_verify(unsigned: Path, tmp_path: Path) -> None:
    shutil.copytree(unsigned, tmp_path / "release")
    signatures.make_key(tmp_path / "key", "other", "")
    signatures.sign_release(tmp_path / "release", tmp_path / "key", filled(tmp_path / "home"), EPOCH)
    assert not published(tmp_path / "release", Path("allowed_signers"))


def test_a_key_of_another_kind_signs_for_ssh_keygen_alone(unsigned: Path, tmp_path: Path) -> None:
    shutil.copytree(unsigned, tmp_path / "release")
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key"))
    subprocess.run(command, check=True)
    signatures.sign_release(tmp_path / "release", tmp_path / "key", filled(tmp_path / "home"), EPOCH, local=True)
    assert published(tmp_path / "release", Path("allowed_signers"))
    added = {path.name for path in (tmp_path / "release").iterdir()} - {path.name for path in unsigned.iterdir()}
    assert added == {"allowed_signers", "SHA256SUMS.sig"}


def test_a_key_is_made_for_its_owner_alone_and_never_replaced(tmp_path: Path) -> None:
    public = signatures.make_key(tmp_path / "keys" / "mine", "ada", "")
    assert public.startswith("ecdsa-sha2-nistp256 ")
    assert public.endswith(" ada")
    assert (tmp_path / "keys" / "mine").stat().st_mode & 0o077 == 0
    with pytest.raises(signatures.SignatureError, match="already exists"):
        signatures.make_key(tmp_path / "keys" / "mine", "ada", "")


def test_one_file_installs_everything_by_the_images_digest(unsigned: Path) -> None:
    text = (unsigned / "install.yaml").read_text()
    objects = [*yaml.safe_load_all(text)]
    kinds_in_order = [each["kind"] for each in objects]
    definitions = len(kinds.KINDS)
    assert kinds_in_order[: definitions + 1] == ["Namespace", *["CustomResourceDefinition"] * definitions]
    assert {"DaemonSet", "Deployment", "ValidatingAdmissionPolicy", "Service"} <= set(kinds_in_order)
    assert not {"Job", "Pod"} & set(kinds_in_order), "hooks of helm would run at once"
    with tarfile.open(unsigned / "netdra-0.2.0-dev.5+g1a2b3c4.tgz") as archive:
        digest = re.search(r"sha256:\w+", archive.extractfile("netdra/Chart.yaml").read().decode())[0]  # type: ignore[union-attr,index]
    images = set(re.findall(r"localhost/netdra[^\s\"]*", text.partition("\n---\n")[2]))
    assert images == {f"localhost/netdra@{digest}"}
    assert tree_version() not in text


def test_each_kind_has_a_json_schema_that_is_closed_and_names_its_version(unsigned: Path) -> None:
    with tarfile.open(unsigned / f"netdra-{VERSION}-json-schemas.tar.gz") as archive:
        found = {member.name: json.load(archive.extractfile(member)) for member in archive}  # type: ignore[arg-type]
    assert len(found) == len(kinds.KINDS)
    policy = found["networking.dra.io/deviceexposurepolicy_v1alpha1.json"]
    assert policy["properties"]["apiVersion"] == {"type": "string", "const": "networking.dra.io/v1alpha1"}
    assert policy["properties"]["kind"] == {"type": "string", "const": "DeviceExposurePolicy"}
    assert policy["properties"]["spec"]["additionalProperties"] is False
    assert "x-kubernetes-" not in json.dumps(found)


def test_the_site_is_packed_without_hidden_files(unsigned: Path) -> None:
    with tarfile.open(unsigned / f"netdra-{VERSION}-site.tar.gz") as archive:
        assert archive.getnames() == [f"netdra-{VERSION}-site/index.html"]


def test_a_chart_of_a_public_release_names_the_runbooks_of_its_home(tmp_path: Path) -> None:
    address = "https://netdra.example.org/docs/alerts.md"
    pack_chart(ROOT / "charts" / "netdra", tmp_path / "netdra.tgz", "0.2.0", "0.2.0", "sha256:aa", EPOCH, address)
    with tarfile.open(tmp_path / "netdra.tgz") as archive:
        values = yaml.safe_load(archive.extractfile("netdra/values.yaml").read())  # type: ignore[union-attr]
        schema = json.load(archive.extractfile("netdra/values.schema.json"))  # type: ignore[arg-type]
    assert values["metrics"]["runbooks"] == address
    assert schema["properties"]["metrics"]["properties"]["runbooks"]["default"] == address


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


CHANGED = (
    "*.whl",
    f"netdra-{VERSION}.tar.gz",
    "netdra-*.tgz",
    "*.oci.tar",
    "provenance.json",
    "*.lock",
    "install.yaml",
)


@pytest.mark.parametrize("pattern", [*CHANGED, "*-site.tar.gz", "netdra-*.prov", "netdra.pem"])
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


def test_the_signers_of_the_sources_are_read_by_ssh_keygen(signed: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "allowed_signers").write_text(read().signers())
    with pytest.raises(signatures.SignatureError):
        signatures.verify(signed[0], tmp_path / "allowed_signers")


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


def test_a_tagged_release_needs_a_dated_section_and_a_home_unless_it_is_local(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "release").mkdir()
    (tmp_path / FILE).write_text(EMPTY)
    check_sources(VERSION, tmp_path)
    for local in (False, True):
        with pytest.raises(ReleaseError, match=r'CHANGELOG\.md: section not found: "## 0\.2\.0'):
            check_sources("0.2.0", tmp_path, local=local)
    everything = "source, browse, docs, issues, security, conduct, maintainers, keys"
    with pytest.raises(ReleaseError, match=rf"release/home\.toml lacks {everything}: .* or build with LOCAL=1"):
        check_sources("0.1.0", tmp_path)
    check_sources("0.1.0", tmp_path, local=True)
    filled(tmp_path)
    check_sources("0.1.0", tmp_path)


def test_links_of_the_notes_lead_to_the_home_or_are_words(unsigned: Path, tmp_path: Path) -> None:
    text = "See [why](docs/why.md#top), [it](https://example.com)."
    found = linked(text, filled(tmp_path / "home"))
    assert found == "See [why](https://git.example.org/netdra/blob/main/docs/why.md#top), [it](https://example.com)."
    assert linked(text, filled(tmp_path / "none", EMPTY)) == "See why, [it](https://example.com)."
    assert re.findall(r"\]\((?!https://)", (unsigned / "NOTES.md").read_text()) == []


def test_the_changelog_begins_with_the_first_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert titles[-1].startswith("0.2.0 (")
    first = section(text, "0.2.0")
    assert {"### Supported versions", "### Limits"} <= set(first.splitlines())
    assert "breaking" not in first
