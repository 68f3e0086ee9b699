import errno
import os
from pathlib import Path

import pytest

from netdra.cni import plugins
from netdra.cni.errors import PluginPermanentError
from netdra.cni.plugins import PluginPath, root_trouble
from netdra.model.errors import InvalidInputError, TemporaryError
from tests import refusing
from tests.refusing import Refusal


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/bin/sh",
        "../bridge",
        "sub/bridge",
        "bridge/",
        "bridge\0",
        "bridge\n",
        "\nbridge",
        " bridge",
        "bridge ",
        ".bridge",
        "-bridge",
        "brіdge",  # a Cyrillic i  # noqa: RUF001
        "ｂｒｉｄｇｅ",  # full-width letters  # noqa: RUF001
        "bridge\u200b",
        "bridge\u202e",
        "b" * 129,
        "\ud800",
    ],
)
def test_a_plugin_type_must_be_a_plain_name(name: str, tmp_path: Path) -> None:
    program(tmp_path / "bridge")
    with pytest.raises(InvalidInputError, match="is not a valid CNI plugin name"):
        plugins.find(name, PluginPath(directories=(str(tmp_path),)))


@pytest.mark.parametrize("name", ["bridge", "ovn-k8s-cni-overlay", "host_local.v2", "802.1q", "B"])
def test_a_plain_name_is_found(name: str, tmp_path: Path) -> None:
    program(tmp_path / name)
    assert plugins.find(name, PluginPath(directories=(str(tmp_path),))).path == str(tmp_path / name)


def test_the_first_directory_that_has_it_wins(tmp_path: Path) -> None:
    program(tmp_path / "b" / "bridge")
    program(tmp_path / "c" / "bridge")
    where = PluginPath(directories=tuple(str(tmp_path / name) for name in ("a", "b", "c")))
    assert plugins.find("bridge", where).path == str(tmp_path / "b" / "bridge")


def test_files_that_are_not_regular_executables_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a" / "bridge").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "bridge").write_text("not executable")
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "bridge", 0o755)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "bridge").symlink_to("/nowhere")
    where = PluginPath(directories=tuple(str(tmp_path / name) for name in ("a", "b", "c", "d")))
    with pytest.raises(PluginPermanentError, match="executable not found") as caught:
        plugins.find("bridge", where)
    assert caught.value.failure.kind == "missing"
    program(tmp_path / "e" / "bridge")
    assert plugins.find("bridge", PluginPath(directories=(*where.directories, str(tmp_path / "e")))).name == "bridge"


def test_a_replaced_binary_is_another_one(tmp_path: Path) -> None:
    where = PluginPath(directories=(str(tmp_path),))
    program(tmp_path / "bridge")
    before = plugins.find("bridge", where)
    assert plugins.find("bridge", where) == before
    program(tmp_path / "new").rename(tmp_path / "bridge")
    assert plugins.find("bridge", where) != before


def test_a_link_in_the_hosts_root_is_followed_inside_that_root(tmp_path: Path) -> None:
    program(tmp_path / "usr" / "lib" / "cni" / "bridge")
    (tmp_path / "opt" / "cni" / "bin").mkdir(parents=True)
    (tmp_path / "opt" / "cni" / "bin" / "bridge").symlink_to("/usr/lib/cni/bridge")
    where = PluginPath(directories=("/opt/cni/bin",), root=str(tmp_path))
    found = plugins.find("bridge", where)
    assert found.path == "/opt/cni/bin/bridge"
    assert found.argv()[1:] == (str(tmp_path), "/opt/cni/bin/bridge")


def test_a_link_out_of_the_hosts_root_leads_nowhere(tmp_path: Path) -> None:
    outside = program(tmp_path / "outside")
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "bin" / "bridge").symlink_to(f"../../../../../../../..{outside}")
    with pytest.raises(PluginPermanentError):
        plugins.find("bridge", PluginPath(directories=("/bin",), root=str(tmp_path / "root")))


def names(where: PluginPath) -> tuple[str, ...]:
    return tuple(each.name for each in plugins.installed(where))


@pytest.mark.parametrize("root", ["/", "/."])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO], ids=errno.errorcode.get)
def test_an_unreadable_folder_is_a_temporary_error_and_not_a_folder_without_plugins(
    tmp_path: Path, number: int, root: str
) -> None:
    program(tmp_path / "bridge")
    where = PluginPath(directories=(str(tmp_path),), root=root)
    for look in (lambda: plugins.find("bridge", where), lambda: plugins.installed(where)):
        with refusing.refusing(Refusal(number, first=1)), pytest.raises(TemporaryError, match="cannot be read"):
            look()
        look()


def test_all_programs_of_the_path_with_a_plain_name_are_installed_plugins(tmp_path: Path) -> None:
    for name in ("bridge", "macvlan", ".hidden", "not a name"):
        program(tmp_path / "b" / name)
    program(tmp_path / "c" / "bridge")
    program(tmp_path / "c" / "host-device")
    (tmp_path / "c" / "README.md").write_text("no program")
    (tmp_path / "c" / "folder").mkdir()
    (tmp_path / "c" / "dangling").symlink_to(tmp_path / "nowhere")
    directories = tuple(str(tmp_path / name) for name in ("missing", "b", "c"))
    assert names(PluginPath(directories=directories)) == ("bridge", "host-device", "macvlan")
    inside = PluginPath(directories=("/missing", "/b", "/c"), root=str(tmp_path))
    assert names(inside) == ("bridge", "host-device", "macvlan")


def test_a_root_with_another_process_table_is_reported_before_a_plugin_fails_in_it(tmp_path: Path) -> None:
    assert root_trouble("/") is None
    trouble = root_trouble(str(tmp_path))
    assert trouble is not None
    assert f"{tmp_path}/proc/self: No such file or directory" in trouble.what
    (tmp_path / "proc").mkdir()
    own = tmp_path / "proc/self"
    own.symlink_to("4711")
    trouble = root_trouble(str(tmp_path))
    assert trouble is not None
    assert "has the ID 4711 there" in trouble.what
    assert "hostPID: true" in trouble.hint
    own.unlink()
    own.symlink_to(str(os.getpid()))
    assert root_trouble(str(tmp_path)) is None
