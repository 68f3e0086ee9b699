from pathlib import Path

from netdra.chain import checkpoint
from netdra.chain.checkpoint import Header, Namespace, Pod
from netdra.chain.site import Settings
from netdra.cni.plugins import PluginPath
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.pods.guard import Guard
from netdra.node.pods.network import Network


def test_a_checkpoint_is_written_into_the_room_that_was_made_for_it_and_without_it_all_the_same(tmp_path: Path) -> None:
    state = tmp_path / "sandboxes"
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    network = Network(Settings(state=state), Guard(files, ClaimStore.of_state(tmp_path)))
    network.make_room()  # there is no folder yet
    _begin(state, "first")
    network.make_room()
    (made,) = {path.stat().st_ino for path in state.iterdir()} - {(state / "first.jsonl").stat().st_ino}
    assert network.known() == ("first",)
    _begin(state, "second")
    assert (state / "second.jsonl").stat().st_ino == made
    assert set(network.known()) == {"first", "second"}


def _begin(state: Path, sandbox: str) -> None:
    header = Header(
        version=checkpoint.VERSION,
        boot_id=checkpoint.boot_id(),
        pod=Pod(sandbox=sandbox),
        namespace=Namespace(path="/run/netns/x", cookie=7),
        plugins=PluginPath(),
        plans=(),
    )
    checkpoint.create(state, header, 1.0, lasting=False).close()
