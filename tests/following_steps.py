"""How hints about steps of topologies are followed: rules for `tests.following`, and their corrections."""

from __future__ import annotations

import re

from tests import corrections
from tests.corrections import Correction

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
    (re.compile(r'; did you mean "(?P<meant>[\w-]+)"\?\Z'), corrections.write_name),
    (re.compile(r"; write (?P<meant>[a-z.]+/\w+)\Z"), corrections.write),
)
