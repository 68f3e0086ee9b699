"""How hints about steps of topologies are followed: rules for `tests.following`, and their corrections."""

from __future__ import annotations

import re

from tests import corrections
from tests.corrections import Correction, Place, Value, holder, step_at


def set_of_steps(value: Value, path: Place, found: re.Match[str]) -> bool:
    """Parameters that the hint names of the steps that it names."""
    steps = re.findall(r"[\w-]+", found["steps"])
    for step in value["spec"]["steps"]:
        if step["name"] in steps:
            step["config"].update(spoofchk="off", trust="on")
    return True


def put_below(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A step for the VF below the step, which does not depend on another one."""
    step = step_at(value, path)
    vf = {"name": "below", "type": "sriov", "selector": step.pop("selector"), "config": {"spoofchk": "off"}}
    step["dependOn"] = ["below"]
    value["spec"]["steps"].insert(path[2], vf)
    return True


def allocate(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A step of its own device."""
    step = step_at(value, path)
    del step["dependOn"]
    kind = "device-file" if step["type"] == "device-file" else "nic"
    step["selector"] = {"cel": f'device.attributes["dra.networking"].type == "{kind}"'}
    for key in step.get("config", {}).keys() & {"device", "pciBusID"}:
        del step["config"][key]
    return True


def stand_on_others(value: Value, path: Place, _: re.Match[str]) -> bool:
    step = step_at(value, path)
    del step["selector"]
    steps = value["spec"]["steps"]
    step["dependOn"] = [steps[steps.index(step) - 1]["name"]]
    return True


def depend_on_all(value: Value, path: Place, _: re.Match[str]) -> bool:
    """All steps without dependOn as the links of a bond."""
    names = [step["name"] for step in value["spec"]["steps"] if "selector" in step]
    step_at(value, path)["dependOn"] = names
    step_at(value, path)["config"]["links"] = [f"{{{{ {name}.interfaceName }}}}" for name in names]
    return True


def keep_key(value: Value, path: Place, found: re.Match[str]) -> bool:
    """The key that plugins read, in place of one that is written in another case."""
    inner = holder(value, path)
    inner[found["meant"]] = inner.pop(path[-1])
    return True


def join_network(value: Value, path: Place, _: re.Match[str]) -> bool:
    step_at(value, path)["network"] = "back"
    return True


def move_gateway(value: Value, path: Place, _: re.Match[str]) -> bool:
    route = holder(value, path)
    route["nexthops"].append({"gateway": route.pop("gateway"), "weight": 2})
    return True


def set_table(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A table of its own for a rule, with a route in it."""
    holder(value, path)[path[-1]]["table"] = 99
    return add_route(99)(value, path, _)


def add_route(table: int) -> Correction:
    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        route = {"destination": "10.90.0.0/16", "gateway": "10.77.0.1", "table": table}
        step_at(value, path)["config"].setdefault("routes", []).append(route)
        return True

    return act


def move_field(name: str, to: str) -> Correction:
    """Gives a field of the step to another step."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        fields = step_at(value, path).pop(name)
        (other,) = [step for step in value["spec"]["steps"] if step["name"] == to]
        other[name] = fields
        return True

    return act


def assign_to_bond(value: Value, path: Place, found: re.Match[str]) -> bool:
    step_at(value, path)["neutron"]["assignAddresses"] = False
    bond = next(step for step in value["spec"]["steps"] if step["name"] == found["bond"])
    bond["config"]["ipam"] = {"type": "static", "addresses": [{"address": found["meant"]}]}
    return True


RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (re.compile(r"; (?:set|write|use) (?:the network )?(?P<meant>[0-9.]+/\d+)(?:, with [^;]*)?\Z"), corrections.write),
    (re.compile(r"; add one to addresses\Z"), corrections.put([{"address": "10.0.0.5/24"}])),
    (re.compile(r"\ANetworkTopology .*; use an address between them\Z"), corrections.put("10.0.0.5/24")),
    (re.compile(r"; use an address of the connected network\Z"), corrections.put("10.0.0.5/24")),
    (re.compile(r"is not in (?P<network>[0-9a-f.:/]+)(?:, so [^;]*)?; use an address of it\Z"), corrections.use_host),
    (re.compile(r"; use the router's address\Z"), corrections.put("10.0.0.1")),
    (re.compile(r"; add routes: the networks behind it, as "), corrections.add_routes),
    (re.compile(r"; set subnet, or ranges\Z"), corrections.add(subnet="10.0.0.0/24")),
    (re.compile(r"; set range, e\.g\. "), corrections.add(range="10.0.0.0/24")),
    (re.compile(r"; write a network, e\.g\. "), corrections.put("10.0.0.0/24")),
    (re.compile(r"; exclude a smaller part of it\Z"), corrections.put("10.0.0.0/28")),
    (re.compile(r"; use an address, e\.g\. (?P<meant>[0-9.]+)\Z"), corrections.write),
    (re.compile(r"; use a unique fact in config\.name, or "), corrections.put("{{ device.ifName }}")),
    (re.compile(r"; remove [\w.]+: (?:the allocated device is used|plugins would treat .*)\Z"), corrections.remove),
    (
        re.compile(r"; expose it without allowMultipleAllocations, or use a type that shares it\Z"),
        corrections.put("macvlan"),
    ),
    (re.compile(r"; set the value: only a node that prepares a claim knows it\Z"), corrections.put(1500)),
    (re.compile(r"; remove it: the VF gets \d+ Mbit/s; or "), corrections.remove),
    (re.compile(r"; use type (?P<meant>device-file) for the step, or "), corrections.write),
    (re.compile(r"; set failOverMac: active, or "), corrections.configure(failOverMac="active")),
    (re.compile(r"; set \w+: (?P<meant>auto)\Z"), corrections.write),
    (re.compile(r"; set mtu 9216 in the step of "), corrections.configure_all("sriov", mtu=9216)),
    (re.compile(r"; choose another VLAN, or "), corrections.put(300)),
    (
        re.compile(r"; set config\.ipam(?:, or remove execution: [^;]*)?\Z"),
        corrections.configure(ipam={"type": "dhcp"}),
    ),
    (re.compile(r"; use different addresses, or remove mac: "), corrections.remove),
    (re.compile(r"\. Add another VF step to dependOn\.\Z"), depend_on_all),
    (re.compile(r"\. Add another step to dependOn, and list both\.\Z"), depend_on_all),
    (re.compile(r"\. Add the preceding steps to dependOn\.\Z"), stand_on_others),
    (re.compile(r"\. Remove steps from dependOn\.\Z"), corrections.put(lambda names: names[:1])),
    (re.compile(r"\. Use a list: (?P<meant>\[.*\])\.\Z"), corrections.write),
    (re.compile(r'[;.] use (?P<meant>"\{\{ [^"]+ \}\}")\.?\Z', re.IGNORECASE), corrections.write),
    (re.compile(r"\. Use (?P<meant>\{name: .*\})\.\Z"), corrections.write),
    (re.compile(r", which has a fixed set of values\. Known: [\w-]+, (?P<meant>[\w-]+), "), corrections.write),
    (re.compile(r"; remove \w+ from the topology: it is set to true\Z"), corrections.remove),
    (
        re.compile(r'type "(?P<meant>\w+ \w+)" .*; a type is the name of a program in the CNI path: '),
        corrections.put(lambda name: name.replace(" ", "-")),
    ),
    (re.compile(r"; write the value: a claim must not set it\Z"), corrections.put("data0")),
    (re.compile(r"; list its members\Z"), corrections.put("{{ vf1.interfaceName }}")),
    (re.compile(r"; write the address of a router, e\.g\. (?P<meant>[0-9.]+)\Z"), corrections.write),
    (re.compile(r"; use at most (?P<meant>\d+)\Z"), corrections.write),
    (re.compile(r"; raise maxTxRate; 0 means unlimited\Z"), corrections.configure(maxTxRate=0)),
    (
        re.compile(r'; set spoofchk: "off" and trust: "on" in steps? (?P<steps>[^;]*?)(?:, or use ipvlan)?\Z'),
        set_of_steps,
    ),
    (re.compile(r'; use a step of type sriov with spoofchk: "off" below it, or '), put_below),
    (re.compile(r'; use a path that starts with "/", '), corrections.put("/var/lib/leases")),
    (re.compile(r"; use this format, or remove it\Z"), corrections.put("02:00:00:00:00:01")),
    (re.compile(r"; use only (?P<meant>\w+)\Z"), keep_key),
    (re.compile(r"; remove dependOn, and add a selector\b"), allocate),
    (re.compile(r"; allocate it with a step without dependOn\Z"), allocate),
    (re.compile(r"; use another table\Z"), corrections.put(101)),
    (re.compile(r"; set vrfname, e\.g\. (?P<meant>\w+)\Z"), corrections.write),
    (re.compile(r"; set it in the topology, or remove it to use the allocated device\Z"), corrections.remove),
    (re.compile(r"; add a route with table: (?P<meant>\d+)\Z"), add_route(78)),
    (re.compile(r"; set table: (?P<meant>\d+), as in its routes\Z"), corrections.set_field("table")),
    (re.compile(r"; set table, and set it in a route, too\Z"), set_table),
    (re.compile(r"; set (?:address and )?mac\Z"), corrections.add(address="10.77.0.9", mac="02:00:00:00:00:09")),
    (re.compile(r"; leave one of the two out\Z"), corrections.remove),
    (re.compile(r"\. YAML reads on, off, yes and no as booleans: put the value in quotes\.\Z"), corrections.put("off")),
    (re.compile(r"\. Put a list between \[ and \]\.\Z"), corrections.put(lambda text: [text])),
    (re.compile(r"; use one of (?P<meant>\w+), [^;]*, or a number from "), corrections.write),
    (re.compile(r"; move the gateway into nexthops\Z"), move_gateway),
    (re.compile(r"; remove one of them, or set different metrics\Z"), corrections.remove),
    (re.compile(r"; raise mtu to (?P<meant>\d+), or "), corrections.configure(mtu=1280)),
    (
        re.compile(r"; destination must be a network such as (?P<meant>[0-9./]+), "),
        corrections.set_field("destination"),
    ),
    (re.compile(r"; set it on the step with ipam or addresses\Z"), corrections.configure(ipam={"type": "dhcp"})),
    (re.compile(r"; set them in the step of the interface\Z"), move_field("sysctls", "nic")),
    (
        re.compile(r'; set assignAddresses: false, and assign the address to "(?P<bond>\w+)": "(?P<meant>.*)"\Z'),
        assign_to_bond,
    ),
    (re.compile(r"; remove securityGroups, or "), corrections.remove),
    (re.compile(r"; rename the step\Z"), corrections.put("nic")),
    (re.compile(r"; choose another name: an extended resource "), corrections.put("example.com/b")),
    (re.compile(r'; use the same "network" in both steps, or '), join_network),
    (re.compile(r"; assign a different address to each interface\Z"), corrections.put("10.77.0.6/24")),
    (re.compile(r"remove execution or (?P<meant>\w+)\.\Z"), corrections.remove),
    (re.compile(r'; did you mean "(?P<meant>[\w-]+)"\?\Z'), corrections.write_name),
)
