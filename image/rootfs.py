"""The root file system of netdra's image, from a base: only netdra's needs, and no shell.

Run by the Containerfile, inside of the build stage, with nothing but Python's own library:
`rootfs.py BASE PACKAGES WHEEL TARGET`. The content: Python with its library, netdra[cluster] with the packages that
it asks for, the shared libraries that all of these are linked with, `chroot`, and the entries of the package database
of this content. A bill of materials (CycloneDX) goes with it.
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
import marshal
import os
import re
import shutil
import site
import struct
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path

USER = 65532
"""Nobody's number on a node; what distroless images call nonroot."""
SBOM = "usr/share/sbom/netdra.cdx.json"

# Left out of Python's library: modules that test, draw, edit or install, and modules that need a further library.
_LEFT_OUT = re.compile(
    r"^(test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|distutils|site-packages|dist-packages|sqlite3|curses"
    r"|dbm|venv|config-.*|turtle\.py|sitecustomize\.py|lib-dynload/(_test|xx|_xx|_ctypes_test|_tkinter|_sqlite3|_g?dbm"
    r"|readline|_curses|nis\.|_crypt|ossaudiodev).*|.*/tests?/.*|(.*/)?__pycache__)(/|$)"
)
# Of packages: cel-expr-python brings its tests, and extensions that netdra does not switch on.
_LEFT_OUT_OF_PACKAGES = re.compile(
    r"^(\.\./|bin/|bazel-project/|cel_expr_python/ext/ext_(encoders|math|proto)\.)|\.pyi$|/tests?/|\.pyc$"
    r"|/(direct_url\.json|REQUESTED|INSTALLER)$"
)
_LIBRARIES = ("usr/lib", "usr/local/lib", "lib", "usr/lib64", "lib64")
_PT_DYNAMIC, _PT_INTERP, _PT_LOAD = 2, 3, 1  # elf(5)
_DT_NEEDED, _DT_STRTAB = 1, 5
_ACCOUNTS = f"""root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:{USER}:{USER}:nonroot:/nonexistent:/sbin/nologin
"""
_GROUPS = f"root:x:0:\nnogroup:x:65534:\nnonroot:x:{USER}:\n"
_PROBE = "netdra/ops/probe.py"
"""Asks a daemon how it is: a program that the kubelet runs every few seconds, so Python is started without its site."""
_HELP = "/netdra/cli/"
"""The modules whose docstrings are the help of commands."""
_COMMAND = "#!{python}\nimport sys\n\nfrom netdra.__main__ import main\n\nsys.exit(main())\n"


class Root:
    """The root that is made.

    Attributes:
        taken: the files that are the base's, by their real paths there.
    """

    def __init__(self, base: Path, target: Path) -> None:
        self._base, self._target = base, target
        self.taken: set[str] = set()

    def take(self, path: str, to: str = "") -> str:
        """Copy a file of the base, with the links on the way to it, and return where it really is there.

        Args:
            path: below the base's root.
            to: another folder for it.

        Raises:
            FileNotFoundError: the base has no such file.
        """
        done, parts = Path(), list(Path(path).parts)
        while parts:
            step = done / parts.pop(0)
            here = self._base / step
            if here.is_symlink():
                link = str(here.readlink())
                if not to:
                    self._link(step, link)
                parts = [part for part in Path(link).parts if part != "/"] + parts
                done = Path() if link.startswith("/") else done
            elif step.name == "..":
                done = done.parent
            else:
                done = step
        copy = self._target / (Path(to) / Path(path).name if to else done)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._base / done, copy)
        self.taken.add(str(done))
        return str(done)

    def _link(self, at: Path, link: str) -> None:
        made = self._target / at
        if not made.is_symlink():
            made.parent.mkdir(parents=True, exist_ok=True)
            made.symlink_to(link)

    def take_tree(self, folder: str) -> None:
        """Copy Python's library, less what netdra has no use for."""
        top = self._base / folder
        for file in sorted(top.rglob("*")):
            if file.is_file() and not _LEFT_OUT.search(str(file.relative_to(top))):
                self.take(str(file.relative_to(self._base)))

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file that the base does not have."""
        made = self._target / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text, encoding="utf-8")
        made.chmod(mode)


def needed(program: Path) -> tuple[str, list[str]]:
    """The interpreter of an ELF file, and the names of the libraries that it is linked with; none of another file."""
    data = program.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return "", []
    offset, size, number = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + size * index) for index in range(number)]
    interpreter, names = "", []
    for kind, _, start, _, _, length in headers:
        if kind == _PT_INTERP:
            interpreter = data[start : start + length].rstrip(b"\0").decode()
        if kind == _PT_DYNAMIC:
            entries = [struct.unpack_from("<qQ", data, at) for at in range(start, start + length, 16)]
            text = next(value for tag, value in entries if tag == _DT_STRTAB)
            strings = next(
                at + text - address
                for kind, _, at, address, _, length in headers
                if kind == _PT_LOAD and address <= text < address + length
            )
            for tag, value in entries:
                if tag == _DT_NEEDED:
                    names.append(data[strings + value : data.index(b"\0", strings + value)].decode())
    return interpreter, names


def take_libraries(root: Root, base: Path, target: Path) -> None:
    """Take the libraries that what is in the root is linked with, and those of the libraries.

    All go beside the C library, where they are found without a cache.

    Raises:
        SystemExit: the base lacks one.
    """
    at: dict[str, Path] = {}
    for folder in reversed(_LIBRARIES):
        for file in (base / folder).rglob("*.so*"):
            at[file.name] = file.relative_to(base)
    own = {file.name for file in target.rglob("*.so*")}
    beside = ""
    if "libc.so.6" in at:
        beside = str((base / at["libc.so.6"].parent).resolve().relative_to(base.resolve()))
    waiting = [file for file in sorted(target.rglob("*")) if file.is_file() and not file.is_symlink()]
    while waiting:
        file = waiting.pop()
        interpreter, names = needed(file)
        if interpreter:
            root.take(interpreter.lstrip("/"))
            own.add(Path(interpreter).name)
        for name in names:
            if name in own:
                continue
            if name not in at:
                raise SystemExit(
                    f"{file.relative_to(target)} is linked with {name}, which BASE has not: choose a base with it "
                    "(libstdc++6 among them), or install it there"
                )
            root.take(str(at[name]), beside)
            own.add(name)
            waiting.append(target / beside / name)


def distributions(folder: Path) -> Mapping[str, tuple[Path, Message]]:
    """Installed packages by their normalised names: their metadata's folder, and its content."""
    found = {}
    for metadata in folder.glob("*.dist-info/METADATA"):
        text = Parser().parsestr(metadata.read_text(encoding="utf-8"), headersonly=True)
        found[_normalised(text["Name"])] = metadata.parent, text
    return found


def asked_for(known: Mapping[str, tuple[Path, Message]], name: str, extras: frozenset[str]) -> Iterator[str]:
    """The names of the packages that a package asks for here, those that they ask for included."""
    from packaging.requirements import Requirement  # the build's tools bring it

    waiting, done = [(_normalised(name), extras)], set[tuple[str, frozenset[str]]]()
    while waiting:
        package, extras = current = waiting.pop()
        if current in done:
            continue
        done.add(current)
        yield package
        if package not in known:
            raise SystemExit(f"{package} is not in requirements-cluster.lock: run 'make lock'")
        for line in known[package][1].get_all("Requires-Dist", []):
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
                waiting.append((_normalised(requirement.name), frozenset(requirement.extras)))


def take_packages(packages: Path, place: Path) -> list[Message]:
    """Copy netdra and the packages that it asks for, file by file as they are recorded.

    Returns:
        their metadata.
    """
    known = distributions(packages)
    wanted = sorted({*asked_for(known, "netdra", frozenset({"cluster"}))})
    for name in wanted:
        record = known[name][0] / "RECORD"
        with record.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.reader(lines) if not _LEFT_OUT_OF_PACKAGES.search(row[0])]
        for path, *_ in rows:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(packages / path, place / path)
        with (place / known[name][0].name / "RECORD").open("w", encoding="utf-8", newline="") as lines:
            csv.writer(lines, lineterminator="\n").writerows(rows)
    return [known[name][1] for name in wanted]


def debian_packages(base: Path, taken: set[str]) -> list[Message]:
    """The Debian packages that files are of which have been taken, as dpkg describes them."""
    status = base / "var/lib/dpkg/status"
    if not status.exists():
        return []
    files = {_merged(path) for path in taken}
    owners = set()
    for listed in (base / "var/lib/dpkg/info").glob("*.list"):
        if any(_merged(line) in files for line in listed.read_text(encoding="utf-8").splitlines()):
            owners.add(listed.stem.partition(":")[0])
    paragraphs = status.read_text(encoding="utf-8").split("\n\n")
    described = [Parser().parsestr(text, headersonly=True) for text in paragraphs if text.strip()]
    return sorted((text for text in described if text["Package"] in owners), key=lambda text: str(text["Package"]))


def bill(
    python: Sequence[Message],
    debian: Sequence[Message],
    copyrights: Mapping[str, str],
    release: Mapping[str, str],
    time: int,
) -> str:
    """The bill of materials, in CycloneDX 1.6.

    Args:
        python: the metadata of the Python packages.
        debian: what dpkg knows the Debian packages.
        copyrights: the text of a Debian package's `copyright` by its name, of those that have one.
        release: os-release(5) of the base.
        time: seconds since 1970.
    """
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{_normalised(each['Name'])}@{each['Version']}",
            "name": each["Name"],
            "version": each["Version"],
            "purl": f"pkg:pypi/{_normalised(each['Name'])}@{each['Version']}",
            **_license(each),
        }
        for each in python
        if each["Name"] != "netdra"
    ]
    system = release.get("ID", "debian")
    for each in debian:
        purl = f"pkg:deb/{system}/{each['Package']}@{each['Version'].replace('+', '%2B').replace(':', '%3A')}"
        purl += f"?arch={each['Architecture']}&distro={system}-{release.get('VERSION_ID', '')}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": each["Package"],
                "version": each["Version"],
                "purl": purl,
                "supplier": {"name": each["Maintainer"]},
                **_licenses(debian_licenses(each["Package"], copyrights.get(each["Package"], ""))),
            }
        )
    if not any(each["Package"].startswith("python3") for each in debian):  # built by the base itself
        version = ".".join(map(str, sys.version_info[:3]))
        purl = f"pkg:generic/python@{version}"
        components.append({"type": "application", "bom-ref": purl, "name": "python", "version": version, "purl": purl})
    netdra = next(each for each in python if each["Name"] == "netdra")
    purl = f"pkg:generic/netdra@{netdra['Version']}"
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": purl,
                "name": "netdra",
                "version": netdra["Version"],
                "purl": purl,
                **_license(netdra),
            },
        },
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [each["bom-ref"] for each in components]}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return json.dumps({**content, "serialNumber": f"urn:uuid:{number}"}, indent=1) + "\n"


def compile_all(target: Path, epoch: int) -> None:
    """Compile every module, by its content and not by its time, so that the source is not inspected when it starts."""
    for source in sorted(target.rglob("*.py")):
        shown, content = f"/{source.relative_to(target)}", source.read_bytes()
        tree = ast.parse(content, shown)
        if _HELP not in shown:
            drop_docstrings(tree)
        compiled = Path(importlib.util.cache_from_source(str(source)))
        compiled.parent.mkdir(exist_ok=True)
        # PEP 552: by the source's hash, which is not checked.
        header = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little") + importlib.util.source_hash(content)
        compiled.write_bytes(header + marshal.dumps(compile(tree, shown, "exec", dont_inherit=True)))
    for path in (target, *target.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def drop_docstrings(tree: ast.Module) -> None:
    """Remove the docstrings of a module and its functions, which each process would keep: 2 MiB of the node's driver.

    Those of classes stay: the reference of netdra's kinds is made of them, and `dataclasses` writes one where none is.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) or ast.get_docstring(node) is None:
            continue
        text = node.body.pop(0)
        if not node.body and not isinstance(node, ast.Module):
            node.body.append(ast.copy_location(ast.Pass(), text))


def main() -> None:
    """Make the root."""
    base, packages, wheel, target = map(Path, sys.argv[1:])
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    target.mkdir(parents=True)
    root = Root(base, target)
    python = Path(sys.executable).resolve()
    library = sysconfig.get_path("stdlib").lstrip("/")
    if not (base / str(python).lstrip("/")).exists():
        raise SystemExit(f"BASE has no {python}: BUILD and BASE must have the same Python, at the same place")
    root.take(str(python).lstrip("/"))
    link = target / str(python.with_name("python3")).lstrip("/")
    link.symlink_to(python.name)
    root.take_tree(library)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    place = target / site.getsitepackages()[0].lstrip("/")
    found = take_packages(packages, place)
    for chroot in ("usr/sbin/chroot", "usr/bin/chroot", "sbin/chroot"):
        if (base / chroot).exists():
            root.take(chroot)
            break
    else:
        raise SystemExit("BASE has no chroot (Debian's coreutils), which runs CNI plugins in the node's own root")
    take_libraries(root, base, target)
    for optional in ("etc/ssl/certs/ca-certificates.crt", "etc/os-release", "usr/lib/os-release"):
        if (base / optional).exists():
            root.take(optional)
    debian = debian_packages(base, root.taken)
    copyrights = {}
    for each in debian:
        root.write(f"var/lib/dpkg/status.d/{each['Package']}", each.as_string(maxheaderlen=0).rstrip() + "\n")
        if (base / (notice := f"usr/share/doc/{each['Package']}/copyright")).exists():
            root.take(notice)
            copyrights[each["Package"]] = (base / notice).read_text(encoding="utf-8", errors="replace")
    release = dict(
        line.replace('"', "").split("=", 1)
        for line in _text(base / "etc/os-release", base / "usr/lib/os-release").splitlines()
        if "=" in line
    )
    root.write(SBOM, bill(found, debian, copyrights, release, epoch))
    root.write("etc/passwd", _ACCOUNTS)
    root.write("etc/group", _GROUPS)
    root.write("etc/nsswitch.conf", "hosts: files dns\n")
    started = f"/{link.relative_to(target)}"
    root.write("usr/bin/netdra", _COMMAND.format(python=started), 0o755)
    root.write("usr/bin/netdra-health", f"#!{started} -IS\n{_text(place / _PROBE)}", 0o755)
    for folder in ("proc", "sys", "dev", "run", "tmp", "root", "var/lib", "usr/bin", "usr/sbin"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    (target / "var/run").symlink_to("/run")
    (target / "tmp").chmod(0o1777)
    compile_all(target, epoch)


def _text(*files: Path) -> str:
    for file in files:
        if file.exists():
            return file.read_text(encoding="utf-8")
    return ""


def _merged(path: str) -> str:
    """A path as dpkg and the root agree on it, wherever /lib is a link to /usr/lib."""
    return path.strip("/").removeprefix("usr/")


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _license(described: Message) -> Mapping[str, object]:
    """A Python package's licence: its expression, else its name, else those of its classifiers."""
    if expression := described["License-Expression"]:
        return {"licenses": [{"expression": expression}]}
    name = described["License"] or ""
    classified = [
        text.rpartition(" :: ")[2] for text in described.get_all("Classifier", []) if text.startswith("License :: ")
    ]
    return _licenses([name] if name and "\n" not in name else classified)


def debian_licenses(package: str, copyright_file: str) -> list[str]:
    """The short names of the licences in a Debian package's `copyright`; where it is without a form, where to read it.

    The form: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/. The image has the files.
    """
    if not copyright_file:
        return []
    if not copyright_file.startswith("Format:"):
        return [f"see /usr/share/doc/{package}/copyright"]
    named = re.findall(r"^License:[ \t]*(\S[^\n]*)$", copyright_file, re.MULTILINE)
    return sorted({" ".join(name.split()) for name in named})


def _licenses(names: Sequence[str]) -> Mapping[str, object]:
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


if __name__ == "__main__":
    main()
