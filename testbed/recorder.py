"""A CNI plugin for tests that records its calls, and behaves for each verb as the test configures it.

It is a shell script, so it is a real program with a real stdin, environment, exit status and process group. It stands
where no real plugin can be made to show a fault, and for plugins that a test only wants to see called.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

_SCRIPT = """#!/bin/sh
state={state}
# Asked for its versions without any rights, it can record nothing.
if [ ! -w "$state/calls" ]; then echo '{versions}'; exit; fi
n=1
while ! mkdir "$state/calls/$n" 2>/dev/null; do n=$((n + 1)); done
call="$state/calls/$n"
cat >"$call/stdin"
env >"$call/env"
if [ -e "$state/$CNI_COMMAND.sh" ]; then . "$state/$CNI_COMMAND.sh"; fi
"""


@dataclass(frozen=True)
class Call:
    """One call of the plugin: its verb, the configuration that it read, and its environment."""

    verb: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]


class Recorder:
    """A plugin named `name` in `directory`; what it was given is read back with `calls`."""

    def __init__(self, directory: Path, name: str, *, versions: Sequence[str] = VERSIONS) -> None:
        self.name = name
        self.path = directory / name
        self._state = directory / f".{name}.recorded"
        (self._state / "calls").mkdir(parents=True)
        answer = {"cniVersion": versions[-1], "supportedVersions": list(versions)}
        self.path.write_text(_SCRIPT.format(state=self._state, versions=json.dumps(answer)))
        self.path.chmod(0o755)
        self.prints("VERSION", answer)
        self.prints("ADD", {})

    def does(self, verb: str, script: str) -> None:
        """Run these shell lines at the end of each call of a verb; `$call` is where that call is recorded."""
        (self._state / f"{verb}.sh").write_text(script + "\n")

    def prints(self, verb: str, answer: Any) -> None:
        """Print a JSON value at each call of a verb, and succeed."""
        (self._state / f"{verb}.json").write_text(json.dumps(answer))
        self.does(verb, f'cat "$state/{verb}.json"')

    def fails(self, verb: str, code: int = 7, message: str = "configured to fail", details: str = "") -> None:
        """Fail at each call of a verb, as the protocol asks."""
        (self._state / f"{verb}.json").write_text(json.dumps({"code": code, "msg": message, "details": details}))
        self.does(verb, f'cat "$state/{verb}.json"; exit 1')

    def succeeds(self, verb: str) -> None:
        """Do nothing at each call of a verb but succeed."""
        self.does(verb, "")

    def calls(self, *verbs: str) -> list[Call]:
        """The calls so far, in their order; of these verbs only, if any is given, and never VERSION unasked.

        A call that was killed before it was recorded is missing: on a busy machine STATUS may time out so early.
        """
        found = []
        for folder in sorted((self._state / "calls").iterdir(), key=lambda entry: int(entry.name)):
            environment = _environment(folder / "env")
            verb = environment.get("CNI_COMMAND", "")
            if verb in verbs or (not verbs and verb not in ("", "VERSION")):
                found.append(Call(verb, json.loads((folder / "stdin").read_text()), environment))
        return found

    def forget(self) -> None:
        """Forget the calls so far."""
        shutil.rmtree(self._state / "calls")
        (self._state / "calls").mkdir()


def _environment(file: Path) -> Mapping[str, str]:
    try:
        return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
    except FileNotFoundError:
        return {}
