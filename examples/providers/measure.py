#!/usr/bin/env python3
"""A provider: measures with iperf3 what an interface really carries, and has netdra publish it.

    iperf3 -s                                          # on the other end of the wire
    ./measure.py enp1s0 --server 192.0.2.7 --every 60  # on the node

The device then has the capacity `bctl/bandwidth` in Mbit/s and the attribute `bctl/latency` in microseconds, as long as
this runs and two measurements' time beyond: docs/registry.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from netdra.model.errors import NetdraError
from netdra.registry_client import SOCKET, RegistryClient


def measured(server: str, seconds: int) -> tuple[int, int]:
    """What TCP to a server gets: Mbit/s, and the mean round trip in microseconds."""
    command = ("iperf3", "--client", server, "--time", str(seconds), "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "{}")
    if done.returncode or "error" in found:
        raise RuntimeError(found.get("error") or done.stderr.strip() or "iperf3 says nothing")
    end = found["end"]
    return int(end["sum_received"]["bits_per_second"] / 1e6), int(end["streams"][0]["sender"]["mean_rtt"])


def main() -> int:
    """Measure and register until stopped."""
    asked = argparse.ArgumentParser(description="Measure an interface with iperf3, and register what it carries.")
    asked.add_argument("device", help="the interface, or the device that netdra publishes")
    asked.add_argument("--server", required=True, help="where iperf3 -s runs")
    asked.add_argument("--provider", default="bctl")
    asked.add_argument("--seconds", type=int, default=2, help="how long each measurement takes")
    asked.add_argument("--every", type=int, default=0, help="measure again after so many seconds; 0 for once")
    asked.add_argument("--ttl", type=int, default=0, help="how long it holds; by default two measurements")
    asked.add_argument("--socket", default=SOCKET)
    asked.add_argument("--token-file", type=Path, help="a pod's token for the audience dra.networking")
    options = asked.parse_args()
    ttl = options.ttl or max(60, 2 * (options.every + options.seconds) + 10)
    token = options.token_file.read_text().strip() if options.token_file else ""
    with RegistryClient(options.provider, options.socket, token) as registry:
        while True:
            try:
                bandwidth, latency = measured(options.server, options.seconds)
                registry.register(options.device, {"latency": latency}, {"bandwidth": bandwidth}, ttl=ttl)
                print(f"{options.device}: {bandwidth} Mbit/s, {latency} µs", flush=True)
            except (RuntimeError, NetdraError) as problem:
                print(f"{options.device}: {problem}", file=sys.stderr, flush=True)
                if not options.every:
                    return 1
            if not options.every:
                return 0
            time.sleep(options.every)


if __name__ == "__main__":
    sys.exit(main())
