"""`netdra why` reads names of objects as kubectl writes them, and is a plugin of kubectl."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli import kubectl_completion
from netdra.cli.main import cli
from netdra.cli.why import lines, show
from netdra.model.errors import InvalidInputError
from netdra.story.statement import Story, done, story_of, wrong

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pod", "a/b/c"), '"a/b/c" is not a valid name of a pod; write [NAMESPACE/]NAME'),
        (("claim", "a/"), "is not a valid name of a claim"),
        (("pod", "/a"), "is not a valid name of a pod"),
        (("device", "eth0"), 'device "eth0": the node is required; write NODE/NAME'),
        (("topology", "ns/net"), 'NetworkTopology "ns/net": the kind has no namespace'),
        (("network", "ns/net"), 'PodNetwork "ns/net": the kind has no namespace'),
        (("pod", "a/b", "-n", "c"), '"a/b" is not in namespace "c"'),
        (("deployment", "a/b", "-n", "c"), '"a/b" is not in namespace "c"'),
        (("job/a/b/c",), '"a/b/c" is not a valid name of a job'),
    ],
)
def test_a_name_of_another_form_is_bad_input(arguments: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(cli, ["why", *arguments])
    assert isinstance(done.exception, InvalidInputError)
    assert text in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("zzz", "a"), '"zzz" has no story; kinds: pod, claim, device, topology, network, deployment'),
        (("deployment",), "specify the name of one deployment: write [NAMESPACE/]NAME"),
        (("pod", "a", "-A"), "--all-namespaces is for netdra why without KIND"),
        (("--watch",), "--watch follows one object"),
        (("podd", "a"), 'did you mean "pod"?'),
        (("pod",), "specify the name of one pod: write [NAMESPACE/]NAME"),
        (("pod/a", "b"), "specify the name of one pod: write [NAMESPACE/]NAME"),
    ],
)
def test_a_kind_without_a_story_or_a_name_is_wrong_usage(arguments: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(cli, ["why", *arguments])
    assert done.exit_code == 2
    assert text in done.output


@pytest.mark.parametrize(
    "arguments", [("pod", "a/b"), ("po", "a/b"), ("pods/b", "-n", "a"), ("Pod/a/b",), ("podnetwork/b",), ("pnet", "b")]
)
def test_an_object_is_named_as_for_kubectl(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["why", *arguments, f"--kubeconfig={tmp_path / 'missing'}"])
    assert isinstance(done.exception, InvalidInputError)
    assert f"kubeconfig {tmp_path / 'missing'}: not found" in str(done.exception)


def test_the_first_three_lines_are_state_cause_and_next_step() -> None:
    story = story_of("Pod a/b", "is not scheduled", [done("Pod a/b", "was created"), wrong("x", "one\ntwo", "wait")])
    assert [*lines(story)][:4] == ["Pod a/b is not scheduled.", "Cause: one; two", "Next: wait", ""]
    fine = Story(subject="Pod a/b", state="runs", cause=None, statements=())
    assert [*lines(fine)][:2] == ["Pod a/b runs.", "No problem was found."]


def test_a_text_of_others_forges_no_line_and_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2Jgone\nNo problem was found."
    statement = wrong("Pod a/b", hostile, hostile, details=[hostile])
    show(story_of("Pod a/b", "waits", [statement]), "text")
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert not any(line.startswith("No problem") for line in printed.splitlines())
    assert printed.splitlines()[1] == "Cause: \\x1b[2Jgone; No problem was found."


def test_kubectl_finds_the_same_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-netdra"] == scripts["netdra"]
    assert scripts["kubectl_complete-netdra"] == f"{kubectl_completion.__name__}:{kubectl_completion.main.__name__}"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["why", "d"], ["device", "deployment", "daemonset"]),
        (["to"], ["top"]),
        (["why", "--wa"], ["--watch"]),
    ],
)
def test_kubectl_completes_commands_options_and_their_choices(
    words: list[str], completed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-netdra", *words])
    kubectl_completion.main()
    *found, directive = capsys.readouterr().out.splitlines()
    assert [line.partition("\t")[0] for line in found] == completed
    assert directive == ":4"
