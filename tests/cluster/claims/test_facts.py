"""Facts of the device, the node and the pod in claims that the real scheduler allocated for real pods."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model.errors import InvalidInputError
from testbed.objects import POD
from tests.cluster.claims.scene import VF, Scene, request

ADDRESS = "10.{{ device.attributes.vfIndex }}.{{ node.labels['example.com/rack'] }}.1{{ pod.ordinal }}/24"
NAMED = f"""
- name: vf
  type: sriov
  selector: {{cel: '{VF}'}}
  config:
    name: "vf{{{{ device.attributes.vfIndex }}}}"
    ipam: {{type: static, addresses: [{{address: "{ADDRESS}"}}]}}
- {{name: t, type: tuning, dependOn: [vf], config: {{mtu: "{{{{ device.attributes.mtu }}}}"}}}}
"""


def test_the_record_has_the_facts_of_the_pod_that_the_claim_is_reserved_for(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        scene.view.labels = {"example.com/rack": "7"}
        topology = scene.topology("named", NAMED)
        wanted = scene.allocated("web", request("vf", f"{topology.name}-vf"))
        await scene.claims.prepare(wanted)
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert record.plan is not None
        (plan,) = record.plan.plans
        vf, tune = plan.steps
        assert vf.device is not None
        index = vf.device.vf_index
        assert index >= 0
        assert plan.pod == "web-0"
        assert (vf.if_name, tune.if_name) == (f"vf{index}", f"vf{index}")
        assert vf.config["ipam"]["addresses"] == [{"address": f"10.{index}.7.10/24"}]
        assert tune.config["mtu"] == 1500

    tell(story)


@pytest.mark.parametrize(
    ("labels", "pods", "text"),
    [
        ({}, 1, 'does not have a label "example.com/rack"'),
        ({"example.com/rack": "x"}, 1, 'to be an address with its prefix length, as 10.0.0.5/24, found "10.'),
        ({"example.com/rack": "7"}, 2, "is shared by pods shared-0, shared-1"),
    ],
)
def test_a_claim_whose_facts_do_not_fit_is_refused(tell: Any, labels: dict[str, str], pods: int, text: str) -> None:
    async def story(scene: Scene) -> None:
        scene.view.labels = labels
        topology = scene.topology("named", NAMED)
        wanted = scene.allocated("shared", request("vf", f"{topology.name}-vf"), pods=pods)
        with pytest.raises(InvalidInputError) as problem:
            await scene.claims.prepare(wanted)
        assert text in problem.value.what
        assert problem.value.hint
        assert scene.store.get(wanted.uid) is None
        # The labels are put right, or a pod is deleted; then the kubelet asks again.
        scene.view.labels = {"example.com/rack": "7"}
        for number in range(1, pods):
            scene.workspace.api.delete(POD, f"shared-{number}", namespace=scene.workspace.namespace)
        assert await scene.claims.prepare(wanted)

    tell(story)
