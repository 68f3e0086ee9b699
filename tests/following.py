"""Follows a hint of `netdra validate`, on the object and the place that its line names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from testbed import yaml
from tests import (
    corrections,
    following_files,
    following_networks,
    following_steps,
    following_topologies,
    following_workloads,
)
from tests.corrections import Correction, Place, Value, holder

_CODE = r"(?: \((?P<code>ND\d{4})\))?\Z"
_PLACE = r"(?: \[(?P<path>[^\]\[ ]+(?:\[\d+\][^ ]*)*)\])?"
LINE = re.compile(rf"\d+: (?:warning: )?(?P<text>.*?){_PLACE}{_CODE}", re.DOTALL)
_BETWEEN = re.compile(rf'(?P<line>\d+): .*; write "---" on a line between the two objects{_CODE}')
_NAMED = re.compile(r'(?P<kind>[A-Z]\w+) "(?P<name>[^"]*)"')
_PART = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


def followed(text: str, line: str) -> str | None:
    """The text of a file after its author followed a line's hint; None if no rule covers the hint."""
    if (between := _BETWEEN.match(line)) is not None:
        lines = text.splitlines()
        return "\n".join([*lines[: int(between["line"]) - 1], "---", *lines[int(between["line"]) - 1 :], ""])
    for pattern, rewrite in following_topologies.OF_TEXTS:
        if pattern.search(line) is not None and (new := rewrite(text)) != text:
            return new
    parts = LINE.match(line)
    if parts is None:
        return None
    try:
        documents = [value for value in yaml.safe_load_all(text) if value is not None]
    except yaml.YAMLError:
        return None
    for pattern, change in following_files.RULES:
        if (found := pattern.search(parts["text"])) is not None and change(documents, found):
            return str(yaml.safe_dump_all(documents, sort_keys=False))
    path = _path(parts["path"] or "")
    value = _meant(documents, parts["text"], path)
    if value is None or not path:
        return None
    if _corrected(documents, value, path, parts["text"]):
        return str(yaml.safe_dump_all([left for left in documents if left], sort_keys=False))
    return None


def _corrected(documents: list[Value], value: Value, path: Place, text: str) -> bool:
    """Whether a rule for the text corrected the object, or the file around it."""
    for pattern, change in following_topologies.OF_FILES:
        if (found := pattern.search(text)) is not None and change(documents, value, path, found):
            return True
    for pattern, act in (*_RULES, *following_topologies.RULES):
        if (found := pattern.search(text)) is not None and act(value, path, found):
            return True
    return False


def _path(shown: str) -> Place:
    return tuple(int(number) if number else word for number, word in _PART.findall(shown))


def _meant(documents: list[Value], text: str, path: Place) -> Value:
    """The object that a line is about: the one that it names, or else another one, that has the place."""
    named = _NAMED.match(text)
    placed = [value for value in documents if holder(value, path) is not None]
    its = (value for value in placed if named is None or (value.get("kind"), _name(value)) == named.groups())
    return next(its, placed[0] if placed else None)


def _name(value: Value) -> str:
    metadata = value.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


_RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (re.compile(r'set deviceClassName of request "(?P<name>[^"]+)" to "(?P<meant>[^"]+)"\Z'), corrections.write_class),
    (re.compile(r'add "(?P<meant>[^"]+)" to dependOn\Z'), corrections.depend),
    (re.compile(r'did you mean "(?P<meant>[^"]+)"\?'), corrections.rename),
    (re.compile(r'; use "(?P<meant>[^"{]+)"\Z'), corrections.write),
    (re.compile(r"; write (?P<meant>[a-z.]+/\w+)\Z"), corrections.write),
    (re.compile(r"; write kind: (?P<meant>\w+)\Z"), corrections.write),
    (
        re.compile(r"[;.] (?:remove (?:it|the field|its namespace|the label)|leave it out)\b[^;]*\Z", re.IGNORECASE),
        corrections.remove,
    ),
    (re.compile(r'; write text beside it: (?P<meant>"net[^"]+(?:"[^"]+"[^"]+)*")\Z'), corrections.write),
    (re.compile(r"; shorten config\.name\Z"), corrections.shorten),
    (re.compile(r"; use (?:at most 63 )?lower-case letters, digits"), corrections.clean),
    (re.compile(r"; give it a minimum and a maximum\Z"), corrections.bound),
    (re.compile(r"[;.] remove (?P<meant>\w+)(?:[.;]|, or [^;]*)?\Z", re.IGNORECASE), corrections.remove_named),
    (re.compile(r"; remove (?P<meant>resourceClaimName) or resourceClaimTemplateName\Z"), corrections.remove_named),
    (re.compile(r"; set a metric, so that eth0"), corrections.set_metric),
    (re.compile(r"; write (?P<meant>\"?[0-9a-f][0-9a-f.:/]*\"?|true)(?: without quotes)?\Z"), corrections.write),
    (re.compile(r"; write an address from (?P<first>[0-9.]+) to (?P<last>[0-9.]+)\Z"), corrections.write_bound),
    (re.compile(r"; (?:use|choose) another config\.(?P<meant>name)\Z"), corrections.write),
    (re.compile(r"; put it in quotes\b[^;]*\Z"), corrections.quote),
    (re.compile(r"; remove one of (?:them|the two)\Z"), corrections.remove_one),
    (re.compile(r"; set exactly one\Z"), corrections.set_value),
    (re.compile(r"; choose another name\Z"), corrections.rename_key),
    (re.compile(r"; move it to additionalFacts\Z"), corrections.move_fact),
    (
        re.compile(r"; replace it before the file is applied, for example with \"envsubst\"\Z"),
        corrections.put(lambda text: re.sub(r"\$\{\w+\}", "eth0", text)),
    ),
    (re.compile(r"; list one of [a-z, -]+, or remove keep\Z"), corrections.set_exposure("keep", None)),
    (re.compile(r"; add keep: \[addresses, routes\]\Z"), corrections.set_exposure("keep", ["addresses", "routes"])),
    (re.compile(r"; for claims of a certain VF, remove pooledVFs\Z"), corrections.set_exposure("pooledVFs", None)),
    (re.compile(r"; set exclusive: true\Z"), corrections.make_exclusive),
    (re.compile(r"; set exclusive: true, and remove allowMultipleAllocations\Z"), corrections.make_whole),
    (re.compile(r"\. Rename \"(?P<name>\w+)\" to \"(?P<meant>\w+)\"\.\Z"), corrections.rename_field),
    (re.compile(r"; set requestPolicy\.default of the capacity\Z"), corrections.set_default),
    (re.compile(r"; lower requestPolicy\.default or pooledVFs\.lanes\Z"), corrections.set_default),
    (re.compile(r"; give it another selector, priority or deviceNameSuffix\Z"), corrections.outrank),
    (re.compile(r'; write it in Mbit/s, e\.g\. (?P<meant>"?\d+"?)\Z'), corrections.write),
    (re.compile(r"is reserved; use a domain of your (?P<meant>own)\Z"), corrections.write),
    (re.compile(r"; give each (?:rule )?a name of its own\Z"), corrections.put(lambda name: f"{name}-2")),
    (re.compile(r"; 1 is the default\Z"), corrections.remove),
    (
        re.compile(r"; add matchAttribute or distinctAttribute\Z"),
        corrections.add(matchAttribute="resource.kubernetes.io/numaNode"),
    ),
    (re.compile(r"; name the DeviceClass of the devices\Z"), corrections.put("any-nic")),
    (re.compile(r"; remove the count, or the allocationMode\Z"), corrections.remove),
    (re.compile(r"; remove the value, or write operator: Equal\Z"), corrections.remove),
    (
        re.compile(r'; write "<domain>/<name>" with a domain other than kubernetes.io\Z'),
        corrections.put("example.com/gpu"),
    ),
    (re.compile(r"; write \w+ without them\Z"), corrections.put(lambda path: re.sub(r"/\.{1,2}(?=/)", "", path))),
    (re.compile(r"; write apiVersion: (?P<meant>\S+)\Z"), corrections.write),
    (re.compile(r"; write a number, with a suffix if need be: "), corrections.put("10Gi")),
    (re.compile(r"; it is a field of (?P<meant>\w+)\Z"), corrections.move_into),
    (re.compile(r"; set subnet, e\.g\. (?P<meant>[0-9a-f.:/]+)\Z"), corrections.set_subnet),
    (re.compile(r"; remove miimon; the default is 100\Z"), corrections.remove),
    (
        re.compile(r"; use mode active-backup with failOverMac: active\Z"),
        corrections.configure(mode="active-backup", failOverMac="active"),
    ),
    (re.compile(r"[;.] remove the quotes of (?:the number|\d+\.)\Z", re.IGNORECASE), corrections.unquote),
    (re.compile(r"; correct one of the two\Z"), corrections.lower),
    (re.compile(r"; remove mtu from the step, or "), corrections.remove),
    (re.compile(r"; choose a larger subnet, or exclude less\Z"), corrections.exclude_nothing),
    (re.compile(r"; exchange them\Z"), corrections.exchange("first", "last")),
    (re.compile(r"; swap them\Z"), corrections.exchange("rangeStart", "rangeEnd")),
    (re.compile(r"; write an address, a subnet, or the first and last address: "), corrections.put("10.77.0.20")),
    (re.compile(r"; write the address of a router in one of the ranges' subnets\Z"), corrections.put("10.77.0.1")),
    (re.compile(r"; set the route's gateway, or that of the range\Z"), corrections.set_gateway),
    (re.compile(r"; write an address of IPv6\Z"), corrections.put("2001:db8::1")),
    (re.compile(r"; choose one of .* that is not excluded\Z"), corrections.put("10.77.0.50")),
    (re.compile(r"\. Set an IPAM plugin, e\.g\. (?P<meant>[\w-]+)\.\Z"), corrections.set_type),
    (re.compile(r'; set its value as text, e\.g\. "1", or remove it\Z'), corrections.remove),
    (re.compile(r"; only settings below net, such as "), corrections.remove),
    (re.compile(r"; remove \w+: it is set to the allocated device\Z"), corrections.remove),
    (re.compile(r"; remove ipam\Z"), corrections.configure(ipam=None)),
    (re.compile(r"; remove config\.ipam, or "), corrections.configure(ipam=None)),
    (re.compile(r"; remove config\.mtu, or mtu from keep\Z"), corrections.configure(mtu=None)),
    (re.compile(r"; set destination, e\.g\. "), corrections.add(destination="10.0.0.0/8")),
    (re.compile(r"; set one of the two to 0\Z"), corrections.put(0)),
    (re.compile(r"; set vlan, 1 to 4094\Z"), corrections.beside(vlan=100)),
    (re.compile(r"; use an address of the subnet\Z"), corrections.put("10.77.0.10")),
    (re.compile(r"; use one of (?P<meant>\w+)(?:, \w+)*\Z"), corrections.write),
    (re.compile(r"; leave out either port or "), corrections.remove),
    (re.compile(r"; a port of Neutron is a VF's\Z"), corrections.remove),
    (re.compile(r"; remove the selector or dependOn\Z"), corrections.remove),
    (
        re.compile(r"; use at most 63 letters and digits, the first a lower-case letter\Z"),
        corrections.put("macvlanMode"),
    ),
    (
        re.compile(r'"[^" ]*(?:\{[^"]*)?" is not .*; a type is the name of a program in the CNI path: '),
        corrections.put("sriov"),
    ),
    (re.compile(r"; write the program's name alone: (?P<meant>[\w-]+)\Z"), corrections.write),
    (re.compile(r"; give one of them another config\.name\Z"), corrections.put("other0")),
    (re.compile(r"; assign a different address to each pod\Z"), corrections.put("10.77.0.99/24")),
    (re.compile(r"; move it to the step of the device that this one stands on\Z"), corrections.move_keep),
    (re.compile(r"; add selector\.cel, or the steps that it depends on\Z"), corrections.add(selector={"cel": "true"})),
    (re.compile(r"; list each address in only one range\Z"), corrections.keep_one_range),
    (re.compile(r"; set allowHostAddresses: true\Z"), corrections.set_exposure("allowHostAddresses", new=True)),
    (re.compile(r"; add it to namespaces, or change the reservation\Z"), corrections.permit_namespace),
    (re.compile(r"; use another address in one of the claims\Z"), corrections.give(address="10.77.0.99/24")),
    (re.compile(r"; use an address between them\Z"), corrections.give(address="10.77.0.99/24")),
    (re.compile(r"; use an address of it\Z"), corrections.give(router="10.77.0.1")),
    (re.compile(r"; use the router's address\Z"), corrections.give(router="10.77.0.254")),
    (re.compile(r"; change one of the two\Z"), corrections.put('device.attributes["dra.networking"].ifName == "eno9"')),
    (re.compile(r"; (?:write several claims|request one device, or [^;]*)\Z"), corrections.one_each),
    (re.compile(r"; known kinds: \w+, (?P<meant>\w+), "), corrections.write),
    (re.compile(r"; request the classes of its root steps: (?P<meant>[\w-]+)\Z"), corrections.write),
    (re.compile(r"; list the networks behind this interface, or "), corrections.put("10.9.0.0/16")),
    (re.compile(r"; request a VF of another PF in one of these steps\Z"), corrections.of_another_pf),
    (re.compile(r'; set spoofchk: "off" in these steps, or '), corrections.configure_all("sriov", spoofchk="off")),
    (re.compile(r"; use a name of (?P<meant>\w+), \w+, or a reference: "), corrections.write),
    (
        re.compile(r"; add one value per pod; the first is for pod 0\Z"),
        corrections.put(["10.77.0.10/24", "10.77.0.11/24"]),
    ),
    (re.compile(r"; set cniType to (?P<meant>\w+), and execution: Binary "), corrections.describe_itself),
    (re.compile(r"\. Add text beside it, or "), corrections.put(lambda text: f"10.0.0.1{text}/24")),
    (re.compile(r'\. Add the prefix length: "'), corrections.put(lambda text: f"{text}/24")),
    (re.compile(r"\. Use a single reference, to a fact that is "), corrections.put("{{ device.attributes.mtu }}")),
    (re.compile(r"; add a constraint with distinctAttribute: (?P<meant>[\w./-]+), or "), corrections.keep_apart),
    (re.compile(r"; use a StatefulSet\Z"), corrections.number_pods),
    (
        re.compile(r"; add a link, and its step to dependOn\Z"),
        corrections.put(["{{ vf0.interfaceName }}", "{{ vf1.interfaceName }}"]),
    ),
    (re.compile(r'; raise the MTU of "\w+" in an earlier step, or '), corrections.configure_all("sriov", mtu=9216)),
    (re.compile(r"; divide the range by first and last\Z"), corrections.add(first="10.77.0.100")),
    (re.compile(r"; set this VLAN once, in the step or "), corrections.configure(id=200)),
    (
        re.compile(r"; add runtimeConfig with portMappings: "),
        corrections.configure(
            runtimeConfig={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
        ),
    ),
    (re.compile(r"; let the step depend on a step of type sriov or host-device\Z"), corrections.put(["roce"])),
    (re.compile(r"; use (?P<meant>[0-9./]+), with the prefix length of the network, or "), corrections.write),
    (re.compile(r"; refer to a parameter: "), corrections.put("{{ params.address }}")),
    (re.compile(r"; write network: NAME beside config\Z"), corrections.join_network),
    (re.compile(r"; a step can only depend on steps that do not depend on it\Z"), corrections.put(["vf0", "vf1"])),
    (re.compile(r"; declare it in spec\.parameters\Z"), corrections.declare),
    (re.compile(r"; refer to the device in its own step, and to "), corrections.refer_to_result),
    (re.compile(r"; write the value, or \{\{ params\.<name> \}\} for "), corrections.put("blue")),
    (re.compile(r"; the steps' interfaces are [^;]*: name one as "), corrections.put("{{ bond0.interfaceName }}")),
    (re.compile(r"; use a request of a topology's DeviceClass, or remove the values\Z"), corrections.remove),
    (re.compile(r"; give it in the claim's spec\.devices\.config, as "), corrections.give_per_pod),
    (
        re.compile(r"; docs/claims\.md describes the parameters of a DeviceClass; "),
        corrections.add(kind="DeviceParameters"),
    ),
    (
        re.compile(r'; (?:did you mean "|write )(?:e\.g\. )?\{\{ device\.attributes\.'),
        corrections.configure(name="rail{{ device.attributes.rail }}"),
    ),
    (
        re.compile(r"; write \{\{ step\.field \}\} with a step's name and "),
        corrections.configure(vlan="{{ params.vlan }}"),
    ),
    (re.compile(r'; add a step of type "tuning" with this ipam on its interface\Z'), corrections.address_later),
    (
        re.compile(r"; let the step's selector match only devices to which it applies\Z"),
        corrections.select_by('device.attributes["dra.networking"].vfIndex >= 0'),
    ),
    (re.compile(r"; references are resolved in values only\Z"), corrections.name_the_key),
    *following_steps.RULES,
    *following_networks.RULES,
    *following_workloads.RULES,
)


def hints(said: list[str]) -> Iterator[str]:
    """The texts of lines, without place and code."""
    for line in said:
        parts = LINE.match(line)
        yield parts["text"] if parts is not None else line
