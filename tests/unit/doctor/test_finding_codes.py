"""Each finding of the doctor that is not well has a code; an error that it quotes brings its own."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from netdra.cli.codes import every, find
from netdra.cli.main import cli
from netdra.doctor import cluster_verdicts, network_verdicts, neutron_verdicts, node_verdicts, process_verdicts
from netdra.doctor.cluster_verdicts import ClusterFacts, Component
from netdra.doctor.diagnosis import Diagnosis, Unseen, attempt, diagnose
from netdra.doctor.network_verdicts import NetworkFacts
from netdra.doctor.neutron_verdicts import Account, CloudFacts
from netdra.doctor.node_verdicts import NodeFacts
from netdra.doctor.process_verdicts import DriverFacts, ProcessFacts
from netdra.model.errors import PermanentError

NOW = datetime(2026, 11, 27, 10, 0, tzinfo=UTC)
OLD = ClusterFacts(server="v1.30.0", components=(Component("a", "node", "0.0.1"),))
STOPPED = ProcessFacts(
    components=(Component("w", "webhook", "1", is_ready=False),), drivers=DriverFacts(frozenset("n"))
)
CLOUD = CloudFacts(account=Account(user="u", project="p", roles=(), url="https://n"))


def findings() -> list[Diagnosis]:
    """The findings of a node, a cluster and a cloud that lack nearly everything."""
    found = node_verdicts.verdicts(NodeFacts(plugins=(node_verdicts.InstalledPlugin("a", ""),), held=None))
    found += cluster_verdicts.verdicts(OLD, "1.0", NOW)
    found += cluster_verdicts.unreachable("it is away") + cluster_verdicts.not_looked_at("no kubeconfig")
    found += process_verdicts.verdicts(STOPPED)
    found += network_verdicts.verdicts(NetworkFacts(networks=Unseen("you may not")), NOW)
    return found + neutron_verdicts.of_cloud(CLOUD, ())


def test_a_finding_has_a_code_unless_it_is_well() -> None:
    found = findings()
    assert {each.level for each in found} == {"ok", "warning", "error"}
    assert [each for each in found if bool(each.code) != (each.level != "ok")] == []
    families = {"node": "ND2", "cluster": "ND3", "neutron": "ND3"}
    assert [each for each in found if each.code and not each.code.startswith(families[each.where])] == []


def test_the_code_of_a_finding_is_explained_with_its_check() -> None:
    codes = every()
    for each in (finding for finding in findings() if finding.code):
        texts = codes[each.code].texts
        assert texts[0].startswith((each.check.partition(" ")[0], "{check}", "{gate}")), each


def test_the_code_of_a_quoted_error_is_that_of_the_finding() -> None:
    found = diagnose("neutron", "login", "error", "the password is wrong (ND3041)", "correct it", code="ND3120")
    assert (found.seen, found.code, found.coded) == (
        "the password is wrong",
        "ND3041",
        "the password is wrong (ND3041)",
    )


def test_a_part_that_cannot_be_read_has_the_code_of_the_cause() -> None:
    async def fail() -> None:
        raise PermanentError("you may not list nodes", code="ND8403")

    assert asyncio.run(attempt(fail())) == Unseen("you may not list nodes (ND8403)")


def test_the_doctor_prints_codes_and_explain_code_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdra.doctor.node_look.look", lambda _: NodeFacts())
    table = CliRunner().invoke(cli, ["doctor", "--only", "node"])
    assert table.exit_code == 1
    assert "cannot be listed (ND2321)" in table.stdout
    entries = json.loads(CliRunner().invoke(cli, ["doctor", "--only", "node", "-o", "json"]).stdout)
    (interfaces,) = (entry for entry in entries if entry["check"] == "interfaces")
    assert (interfaces["seen"], interfaces["code"]) == ("cannot be listed", "ND2321")
    assert all("code" not in entry for entry in entries if entry["level"] == "ok")
    code = find("ND2321")
    assert code is not None
    assert code.hints == (interfaces["fix"],)
