"""The pages agree with the code: their examples are valid, their tables complete, their links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli import chains, daemons
from netdra.cli.main import COMMANDS, cli
from netdra.controller.status import CLAIMS_FAILED
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.inventory import ATTRIBUTES, PUBLISHED_ATTRIBUTES
from netdra.model.names import DRIVER
from netdra.model.topology import NetworkTopology, NeutronRequest
from netdra.networks.errors import AddressError
from netdra.neutron.errors import NeutronError
from netdra.node.sandboxes.table import Life, Phase
from netdra.steps.addressing import NextHopParams, RouteParams
from netdra.steps.builtin import TYPES
from netdra.steps.contract import Params
from netdra.steps.routing import NeighbourParams, RuleParams
from netdra.topology import plain
from netdra.topology.interfaces import MAKERS
from netdra.topology.references import FIELDS

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

NAMES = [each.name for each in ATTRIBUTES]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_class_in_the_page_on_claims_is_sound() -> None:
    (example,) = examples("claims.md")
    (found,) = documents.read(example, "claims.md")
    assert isinstance(found, DeviceClass)
    (config,) = found.spec.config
    given = plain.parameters(config.opaque, "claims.md")
    assert given is not None
    assert given.step.type == "macvlan"


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def examples(name: str) -> Iterator[str]:
    yield from re.findall(r"^```yaml\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


def test_every_attribute_is_in_the_table_in_its_order() -> None:
    table = section(page("discovery.md"), "Attributes")
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = re.findall(r"`([^`]+)`", "".join(first))
    every, published = ([name.removeprefix(f"{DRIVER}/") for name in each] for each in (NAMES, PUBLISHED_ATTRIBUTES))
    assert set(named[: len(published)]) == set(published)
    assert set(named[len(published) :]) == set(every) - set(published)
    assert f"The first {len(published)} are on every device" in table


@pytest.mark.parametrize("kind", TYPES)
def test_every_parameter_of_a_step_is_on_the_page_and_no_other(kind: str) -> None:
    text = section(page("steps.md"), kind)
    common = {field.encode_name for field in msgspec.structs.fields(Params)}
    known = {field.encode_name for field in msgspec.structs.fields(TYPES[kind].params)} - common
    if kind == "tuning":
        parts = (RouteParams, NextHopParams, RuleParams, NeighbourParams)
        known |= {field.encode_name for part in parts for field in msgspec.structs.fields(part)}
    cells = "".join("|".join(row.split("|")[1:3]) for row in text.splitlines() if row.startswith("| `"))
    named = set(re.findall(r"`([A-Za-z_]+)`", cells))
    assert known <= named
    assert named <= known | common


def test_the_topologies_page_lists_reference_fields_and_types_with_their_own_interface_names() -> None:
    text = page("topologies.md")
    assert set(re.findall(r"`([A-Za-z\[\].]+)`", section(text, "References"))) >= set(FIELDS)
    listed = re.search(r"These types get a name of their own: (.*?)\.", section(text, "Interface names"), re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`([^`]+)`", listed[1])) == MAKERS


@pytest.mark.parametrize("name", ["topologies.md", "steps.md", "policies.md", "claims.md", "ipam.md"])
def test_the_examples_of_a_page_are_valid_together(name: str, tmp_path: Path) -> None:
    (tmp_path / "page.yaml").write_text("---\n".join(examples(name)))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["from-multus.md", "from-dranet.md", "dpdk.md"])
def test_the_marked_examples_of_a_page_are_valid(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml netdra\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    assert blocks
    (tmp_path / "page.yaml").write_text("---\n".join(blocks))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, ""), done.output


def test_every_event_is_on_the_page_for_troubleshooting() -> None:
    sources = (DOCS.parent / "netdra" / "node").rglob("*.py")
    reported = {
        found
        for path in sources
        for found in re.findall(
            r"(?:_emit_of\(sandbox, \"\w+\", |reason=|self\._tell\()\"([A-Z]\w+)\"", path.read_text(encoding="utf-8")
        )
        if path.name in ("events.py", "announce.py")
    }
    assert len(reported) > 10
    listed = set(re.findall(r"`(\w+)`", page("troubleshooting.md")))
    addresses = {kind.reason for kind in AddressError.__subclasses__()}
    assert (
        reported | addresses | {CLAIMS_FAILED, "DriftCorrected", "PolicyProblem", "NodeProblem", "DeviceLeftOut"}
        <= listed
    )


def test_every_reason_of_a_port_is_on_the_page_and_no_other() -> None:
    table = section(page("neutron.md"), "When a port is not Bound")
    reasons = {kind.reason for kind in NeutronError.__subclasses__()}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == reasons


def test_every_field_of_a_request_is_on_the_page() -> None:
    table = section(page("neutron.md"), "Request a port").partition("| the VF gets")[0]
    fields = {field.encode_name for field in msgspec.structs.fields(NeutronRequest)}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == fields


def test_the_graph_on_the_page_is_that_of_the_example(tmp_path: Path) -> None:
    text = page("topologies.md")
    topology, *_ = (
        each
        for found in examples("topologies.md")
        for each in documents.read(found, "page")
        if isinstance(each, NetworkTopology)
    )
    (tmp_path / "page.yaml").write_text(documents.to_yaml(topology))
    drawn = CliRunner().invoke(cli, ["graph", str(tmp_path)]).stdout.split("\n\n", 1)[1]
    assert drawn.strip() in text


def test_every_command_and_option_is_on_the_page() -> None:
    text = page("cli.md")
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert f"| `{name}" in text
        for option in (each for each in command.params if isinstance(each, click.Option)):
            assert f"`{option.opts[0]}" in text, f"{name} {option.opts[0]}"


COMMON = {"of a chain": chains.settings_options, "of a daemon": daemons.cluster_options}


def test_a_row_has_the_options_of_its_command() -> None:
    rows = [line for line in page("cli.md").splitlines() if line.startswith("| `")]
    context = click.Context(cli)
    for row in rows:
        cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        path = [word for word in cells[0].strip("`").split() if word.islower() and word[0] not in "[<"]
        command = cli.get_command(context, path[0]) if path[0] in COMMANDS else None
        if command is None:
            continue
        for word in path[1:]:
            command = command.commands[word] if isinstance(command, click.Group) else command

        def none() -> None: ...

        common = {
            option.opts[0]
            for words, add in COMMON.items()
            if words in cells[1]
            for option in getattr(add(none), "__click_params__", [])
        }
        options = [option for option in command.params if isinstance(option, click.Option)]
        wanted = sorted({option.opts[0] for option in options} - common - {"--output"})
        written = re.findall(r"`(--[a-z-]+)", cells[1])
        assert sorted(written) == wanted, cells[0]
        output = next((option for option in options if option.opts[0] == "--output"), None)
        if output is not None and isinstance(output.type, click.Choice):
            assert re.findall(r"[a-z]+", re.sub(r"\(.*?\)", "", cells[2])) == list(output.type.choices), cells[0]


@pytest.mark.parametrize("name", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_between_pages_lead_somewhere(name: Path) -> None:
    text = name.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", text):
        other = name if not target else name.parent / target
        assert other.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_of_the_pages_lists_each_page() -> None:
    listed = set(re.findall(r"\]\(([^)]+)\)", page("README.md")))
    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= listed


def test_every_test_that_a_page_names_is_there() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "tests").rglob("*.py"))
    named = {name for path in PAGES for name in re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8"))}
    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_the_glossary_has_each_term_once_and_those_of_a_sandbox_as_the_code_has_them() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page("glossary.md"), re.MULTILINE)
    terms = [name for row, _ in rows for name in row.split(", ") if row != "term" and not row.startswith("-")]
    assert len(terms) == len(set(terms))
    assert {each.value for kind in (Phase, Life) for each in kind} <= set(terms)


def test_every_decision_has_a_status_and_a_date_and_is_listed() -> None:
    listed = page("decisions/README.md")
    for path in sorted((DOCS / "decisions").glob("D*.md")):
        third = path.read_text(encoding="utf-8").splitlines()[2]
        assert re.match(r"Status: (accepted|superseded), \d{4}-\d{2}-\d{2}\.", third), path.name
        assert f"({path.name})" in listed, path.name


def test_the_readme_shows_the_demo_as_it_is() -> None:
    """The numbered lines of the README's block are titles of the demo's chapters."""
    chapters = (DOCS.parent / "netdra" / "lab" / "chapters.py").read_text(encoding="utf-8")
    titles = re.findall(r"^\d+\. (.+)$", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(titles) == 2
    assert [title for title in titles if title not in chapters] == []
