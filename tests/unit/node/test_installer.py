"""A plugin's binary is installed entirely or not at all, kept, replaced, and removed, also if killed at any point."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.cni_plugin import DescribedPlugin
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.node.executables import MACHINES, interpreter
from netdra.node.installer import PluginInstallation, PluginKeeper, describe, install, remove
from testbed.pace import within
from testbed.waiting import until

ANSWER = """#!/bin/sh
# {text}
echo '{{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}}'
"""


def made(path: Path, text: str = "first", content: str = ANSWER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content.format(text=text))
    path.chmod(0o755)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Scene:
    def __init__(self, folder: Path) -> None:
        self.image, self.folder = folder / "image", folder / "bin"
        self.target = self.folder / "demo"
        self.folder.mkdir()
        self.source = made(self.image / "demo")

    def wanted(self, **spec: str) -> PluginInstallation:
        return PluginInstallation(source=self.source, folder=self.folder, name="demo", **spec)

    def upgrade(self, text: str = "second") -> PluginInstallation:
        made(self.source, text)
        return self.wanted()

    def versions(self) -> set[str]:
        return {each.name for each in (self.folder / ".netdra" / "demo").iterdir()}

    def tidy(self) -> bool:
        """Whether every file is either the plugin or a complete version of it."""
        files = [each for each in self.folder.rglob("*") if each.is_file() and each != self.target]
        return all(each.name == "demo" and digest(each) == each.parent.name for each in files)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_is_installed_executable_and_known_by_its_digest(scene: Scene) -> None:
    found = install(scene.wanted(digest=digest(scene.source)))
    assert found == digest(scene.source) == digest(scene.target)
    assert os.access(scene.target, os.X_OK)
    assert scene.versions() == {found}
    assert scene.target.stat().st_nlink == 2
    assert subprocess.run([scene.target], check=True, capture_output=True).stdout


def test_installing_it_again_changes_nothing(scene: Scene) -> None:
    install(scene.wanted())
    before = scene.target.stat()
    install(scene.wanted())
    after = scene.target.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_an_upgrade_keeps_the_version_before_and_none_older(scene: Scene) -> None:
    digests = [install(scene.wanted()), install(scene.upgrade()), install(scene.upgrade("third"))]
    assert digest(scene.target) == digests[2]
    assert scene.versions() == set(digests[1:])
    assert install(scene.upgrade("second")) == digests[1]
    assert scene.versions() == set(digests[1:])


def test_a_program_that_runs_is_replaced(scene: Scene) -> None:
    made(scene.source, content='#!/bin/sh\n[ -n "$CNI_COMMAND" ] || sleep 60\n' + ANSWER.partition("\n")[2])
    install(scene.wanted())
    busy = subprocess.Popen([scene.target])
    try:
        assert install(scene.upgrade()) == digest(scene.target)
    finally:
        busy.kill()
        busy.wait()


def dynamic(loader: str, *, wide: bool = True, order: Literal["little", "big"] = "little") -> bytes:
    """An ELF file for this machine whose only segment names its loader."""
    machine = MACHINES[platform.machine()]
    size, segment = (64, 56) if wide else (52, 32)
    text = loader.encode() + b"\0"

    def number(value: int, width: int) -> bytes:
        return value.to_bytes(width, order)

    word = 8 if wide else 4
    head = b"\x7fELF" + bytes((2 if wide else 1, 1 if order == "little" else 2, 1)) + bytes(9)
    head += number(2, 2) + number(machine, 2) + number(1, 4) + number(0, word) + number(size, word) + number(0, word)
    head += number(0, 4) + number(size, 2) + number(segment, 2) + number(1, 2) + bytes(6)
    place, long = number(size + segment, word), number(len(text), word)
    entry = number(3, 4) + (number(4, 4) if wide else b"") + place + number(0, word) * 2 + long
    return head + entry.ljust(segment, b"\0") + text


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["little", "big"])
def test_a_dynamic_program_whose_loader_is_missing_is_refused_before_it_is_run(
    scene: Scene, wide: bool, order: Literal["little", "big"]
) -> None:
    scene.source.write_bytes(dynamic("/lib/ld-musl-none.so.1", wide=wide, order=order))
    for act in (install, describe):
        with pytest.raises(PermanentError) as refused:
            act(scene.wanted())
        assert "is linked dynamically, and its loader /lib/ld-musl-none.so.1 is not in netdra's image" in str(
            refused.value
        )
        assert "link it statically" in refused.value.hint
    assert not scene.target.exists()


@pytest.mark.parametrize("line", ["#!/no/such", "#! /no/such -e", "#!/no/such\tx"])
def test_a_script_whose_interpreter_is_missing_is_refused_before_it_is_run(scene: Scene, line: str) -> None:
    made(scene.source, content=f"{line}\n")
    with pytest.raises(PermanentError, match="is a script for /no/such, which is not in netdra's image"):
        install(scene.wanted())


@given(
    st.binary(max_size=300)
    | st.tuples(st.integers(0, 200), st.binary(max_size=40)).map(
        lambda cut: dynamic("/lib/x")[: cut[0]] + cut[1] + dynamic("/lib/x")[cut[0] + len(cut[1]) :]
    )
)
def test_no_file_makes_the_look_for_its_loader_fail(data: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        assert isinstance(interpreter(file), str)


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho rubbish\n", "\x7fELF", "#!\n"])
def test_a_binary_that_does_not_answer_is_not_installed_and_the_one_before_stays(scene: Scene, content: str) -> None:
    before = install(scene.wanted())
    made(scene.source, content=content)
    with pytest.raises(PermanentError, match='CNI plugin "demo": the binary does not answer VERSION'):
        install(scene.wanted())
    assert digest(scene.target) == before
    assert scene.versions() == {before}


def test_another_digest_than_the_one_that_is_asked_for_is_refused(scene: Scene) -> None:
    with pytest.raises(PermanentError, match=f"has the SHA-256 {digest(scene.source)}, and {'0' * 64} is asked for"):
        install(scene.wanted(digest="0" * 64))
    assert not scene.target.exists()


def test_a_binary_of_another_architecture_is_refused_by_name(scene: Scene) -> None:
    other = 183 if platform.machine() == "x86_64" else 62
    scene.source.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + other.to_bytes(2, "little") + bytes(44))
    with pytest.raises(PermanentError, match=r"is for (aarch64|x86_64), and this node is"):
        install(scene.wanted())


def _file(path: Path) -> None:
    made(path, "somebody else's")


def _same(path: Path) -> None:
    made(path)


def _link(path: Path) -> None:
    path.symlink_to(sys.executable)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("foreign", [_file, _same, _link, _folder])
def test_a_foreign_file_at_the_target_is_named_and_neither_replaced_nor_removed(
    scene: Scene, foreign: Callable[[Path], None]
) -> None:
    foreign(scene.target)
    before = scene.target.lstat()
    with pytest.raises(PermanentError, match="is not netdra's, and is left as it is") as caught:
        install(scene.wanted())
    assert str(scene.target) in caught.value.what
    assert "give the CNIPlugin another name" in caught.value.hint
    assert not remove(scene.folder, "demo")
    assert scene.target.lstat() == before


def test_a_binary_overwritten_in_place_counts_as_foreign(scene: Scene) -> None:
    install(scene.wanted())
    made(scene.target, "written over")
    with pytest.raises(PermanentError, match="is not netdra's"):
        install(scene.wanted())
    scene.target.unlink()
    assert install(scene.wanted()) == digest(scene.target) == digest(scene.source)
    assert scene.tidy()


@pytest.mark.parametrize("name", ["", "..", "../../etc/demo", "a/b", "a b", ".netdra", "é"])
def test_an_invalid_plugin_name_is_rejected_on_install_and_remove(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a valid CNI plugin name"):
        install(PluginInstallation(source=scene.source, folder=scene.folder, name=name))
    with pytest.raises(InvalidInputError, match="is not a valid CNI plugin name"):
        remove(scene.folder, name)


def test_removed_it_leaves_nothing_and_other_plugins_alone(scene: Scene) -> None:
    install(scene.wanted())
    install(PluginInstallation(source=scene.source, folder=scene.folder, name="other"))
    assert remove(scene.folder, "demo")
    assert [each.name for each in sorted(scene.folder.iterdir())] == [".netdra", "other"]
    assert not remove(scene.folder, "demo")
    assert remove(scene.folder, "other")
    assert list(scene.folder.iterdir()) == []


def test_a_full_disk_keeps_the_installed_binary(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(scene.folder))

    before = install(scene.wanted())
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(TemporaryError, match="No space left on device") as caught:
            install(scene.upgrade())
    assert caught.value.hint == "make room on the node's disk"
    assert digest(scene.target) == before
    assert scene.tidy()


def test_a_missing_folder_or_source_binary_is_reported(scene: Scene) -> None:
    with pytest.raises(NetdraError, match="No such file or directory"):
        install(PluginInstallation(source=scene.source, folder=scene.folder / "missing" / "deep", name="demo"))
    with pytest.raises(NetdraError, match="No such file or directory"):
        install(PluginInstallation(source=scene.image / "missing", folder=scene.folder, name="demo"))


def _asks_the_kernel(called: object) -> bool:
    of = type(getattr(called, "__self__", None)).__module__
    return getattr(called, "__module__", None) in {"posix", "fcntl", "_io"} or of == "_io"


def killed_after(events: int, work: Callable[[], object]) -> bool:
    """Do work in a child that is killed before it asks the kernel for something the so many-th time."""
    pid = os.fork()
    if pid == 0:
        left = events

        def count(_: object, event: str, called: object) -> None:
            nonlocal left
            if event == "c_call" and _asks_the_kernel(called):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def _nothing(scene: Scene) -> None:
    pass


def _first(scene: Scene) -> None:
    install(scene.wanted())
    scene.upgrade()


def _deleted(scene: Scene) -> None:
    install(scene.wanted())
    scene.target.unlink()


@pytest.mark.parametrize("begin", [_nothing, _first, _deleted])
def test_killed_at_any_point_it_is_the_old_one_or_the_new_one_and_calling_again_finishes(
    tmp_path: Path, begin: Callable[[Scene], None]
) -> None:
    for events in range(1000):
        folder = tmp_path / str(events)
        folder.mkdir()
        scene = Scene(folder)
        begin(scene)
        before = digest(scene.target) if scene.target.exists() else ""
        wanted = digest(scene.source)
        was_killed = killed_after(events, lambda scene=scene: install(scene.wanted()))  # type: ignore[misc]
        after = digest(scene.target) if scene.target.exists() else ""
        assert after in {before, wanted}, events
        assert not after or os.access(scene.target, os.X_OK)
        assert install(scene.wanted()) == digest(scene.target) == wanted
        assert scene.tidy()
        assert scene.versions() == {each for each in (before, wanted) if each}
        if not was_killed:
            assert events > 20
            return
    raise AssertionError("it never ends")


def test_killed_at_any_point_of_removing_calling_again_finishes(tmp_path: Path) -> None:
    for events in range(1000):
        folder = tmp_path / str(events)
        folder.mkdir()
        scene = Scene(folder)
        install(scene.wanted())
        install(scene.upgrade())
        was_killed = killed_after(events, lambda scene=scene: remove(scene.folder, "demo"))  # type: ignore[misc]
        remove(scene.folder, "demo")
        assert list(scene.folder.iterdir()) == [], events
        if not was_killed:
            return
    raise AssertionError("it never ends")


def test_a_keeper_reinstalls_a_deleted_binary_and_ends_on_sigterm(scene: Scene, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("of a container that is gone")
    command = [sys.executable, "-m", "netdra", "cni-plugin", "install", "demo", f"--source={scene.source}"]
    options = [f"--cni-folder={scene.folder}", f"--ready={ready}"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    try:
        wanted = digest(scene.source)
        until(lambda: ready.exists() and ready.read_text() == wanted, "it to be ready", seconds=20)
        scene.target.unlink()
        with within(3.0, "the program's return"):
            until(scene.target.exists, "it to be back")
        assert digest(scene.target) == wanted
        with within(1.0, "the keeper's end"):
            process.terminate()
            assert process.wait(60) == 0
        assert scene.target.exists()
    finally:
        process.kill()
        process.wait()


def test_a_keeper_with_a_foreign_file_at_its_target_is_not_ready_and_reports_it(scene: Scene, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    keeper = PluginKeeper(scene.wanted(), ready)
    keeper.check()
    assert ready.read_text() == keeper.digest
    scene.target.unlink()
    made(scene.target, "somebody else's")
    with pytest.raises(PermanentError, match="is not netdra's"):
        keeper.check()
    assert not ready.exists()


SCHEMA = """
apiVersion: cni.networking.k8s.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: demo}
spec:
  cniType: demo
  configParameters: {required: [{name: mode, type: string}]}
"""


def test_a_description_has_the_schema_beside_the_binary_and_fits_a_containers_message(scene: Scene) -> None:
    assert describe(scene.wanted()).schema is None
    (scene.image / "schema.yaml").write_text(SCHEMA)
    found = describe(scene.wanted())
    assert found.schema is not None
    assert found.schema.cni_type == "demo"
    assert found.cni_versions == ("0.4.0", "1.0.0", "1.1.0")
    assert DescribedPlugin.of_text(found.as_text()) == found
    assert DescribedPlugin.of_text("Error: no such file") is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cniType: demo", "cniType: other", "must hold one CNIPluginSchema, of the plugin demo"),
        ("type: string", "type: strang", "strang"),
        ("spec:", "spec: [", "YAML"),
    ],
)
def test_an_unusable_plugin_schema_is_reported(scene: Scene, old: str, new: str, why: str) -> None:
    (scene.image / "schema.yaml").write_text(SCHEMA.replace(old, new))
    with pytest.raises(NetdraError, match=why):
        describe(scene.wanted())
