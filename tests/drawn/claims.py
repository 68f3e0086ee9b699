"""Random device classes and claims: every kind of request, constraint, amount and configuration."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.drawn.devices import CAPACITIES, DRIVER, Object

NAMESPACE = "agreement"
AMOUNTS = ("1", "2", "3", "5", "10", "500m", "1500m", "2500m", "1Gi", "1536Mi", "1500u", "9E")
ATTRIBUTES = f'device.attributes["{DRIVER}"]'


def classes() -> list[Object]:
    """The device classes that all cases share."""
    ours = f'device.driver == "{DRIVER}"'
    expressions: Mapping[str, Sequence[str]] = {
        "any": (),
        "ours": (ours,),
        "vf": (f'{ours} && {ATTRIBUTES}.type == "vf"',),
        "pf": (ours, f'{ATTRIBUTES}.type == "pf"'),
        "persona": (f'{ours} && {ATTRIBUTES}.supportedCNIs.matches(",(macvlan|ipvlan|macvtap),")',),
        "shared": ("device.allowMultipleAllocations",),
        "exclusive": ("!device.allowMultipleAllocations",),
        "firmware": (f'"firmware" in {ATTRIBUTES} && {ATTRIBUTES}.firmware.isGreaterThan(semver("1.5.0"))',),
        "wide": (
            f'"bandwidth" in device.capacity["{DRIVER}"]',
            f'device.capacity["{DRIVER}"].bandwidth.compareTo(quantity("10")) >= 0',
        ),
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {
                "selectors": [{"cel": {"expression": text}} for text in texts],
                "config": [{"opaque": {"driver": DRIVER, "parameters": {"class": name}}}] if name in "vf pf" else [],
            },
        }
        for name, texts in expressions.items()
    ]


CLASS_NAMES = tuple(each["metadata"]["name"] for each in classes())


def draw_claim(source: random.Random, name: str) -> Object:
    """A claim of that name in the cases' namespace."""
    if source.random() < 0.5:
        return _named_claim(name, requests=[_simple(source)])
    requests = [_request(source, f"r{number}") for number in range(source.choice((1, 1, 2, 3)))]
    names = [each["name"] for each in requests]
    names += [
        f"{each['name']}/{alternative['name']}" for each in requests for alternative in each.get("firstAvailable", ())
    ]
    constraints = []
    if source.random() < 0.35:
        attribute = source.choice(("numaNode", "numaNode", "rdma", "firmware", "type", "port"))
        constraint: Object = {
            source.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): f"{DRIVER}/{attribute}"
        }
        if source.random() < 0.4:
            constraint["requests"] = source.sample(names, source.randint(1, len(names)))
        constraints.append(constraint)
    config = []
    if source.random() < 0.3:
        config.append(
            {
                "requests": source.sample(names, source.randint(0, len(names))),
                "opaque": {"driver": DRIVER, "parameters": {"claim": name}},
            }
        )
    return _named_claim(name, requests=requests, constraints=constraints, config=config)


def _named_claim(name: str, **devices: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": devices},
    }


def _simple(source: random.Random) -> Object:
    exactly: Object = {"deviceClassName": source.choice(("any", "ours", "vf", "pf", "persona", "shared", "exclusive"))}
    if source.random() < 0.5:
        exactly["tolerations"] = [{"operator": "Exists"}]
    return {"name": "r", "exactly": exactly}


def _request(source: random.Random, name: str) -> Object:
    if source.random() < 0.2:
        return {
            "name": name,
            "firstAvailable": [{"name": f"alt{number}", **_wanted(source)} for number in range(source.randint(1, 3))],
        }
    exactly = _wanted(source)
    if source.random() < 0.07:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _wanted(source: random.Random) -> Object:
    wanted: Object = {"deviceClassName": source.choice((*CLASS_NAMES, "any", "any", "ours", "ours", "vf", "shared"))}
    if source.random() < 0.25:
        expression = source.choice(
            (
                f'device.attributes["{DRIVER}"].numaNode == 0',
                f'device.attributes["{DRIVER}"].rdma',
                f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type != "pf"',
                f'!("{CAPACITIES[0].partition("/")[2]}" in device.capacity["{DRIVER}"])',
            )
        )
        wanted["selectors"] = [{"cel": {"expression": expression}}]
    mode = source.random()
    if mode < 0.1:
        wanted["allocationMode"] = "All"
    elif mode < 0.25:
        wanted["count"] = source.choice((2, 2, 3, 4))
    elif mode < 0.26:
        wanted["count"] = source.choice((32, 33))
    if source.random() < 0.2:
        names = source.sample(CAPACITIES, source.choice((1, 1, 2)))
        wanted["capacity"] = {"requests": {each: source.choice(AMOUNTS) for each in names}}
    if source.random() < 0.15:
        wanted["tolerations"] = [
            source.choice(
                (
                    {"operator": "Exists"},
                    {"key": "example.com/down", "operator": "Equal", "value": "a"},
                    {"key": "example.com/down", "operator": "Exists", "effect": "NoSchedule"},
                )
            )
        ]
    return wanted
