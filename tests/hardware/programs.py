"""Further programs for chains on the SR-IOV machine: a bond, and such as fail in the middle.

The bond reads what bond-cni's page documents, in the types that it documents, and nothing else: a number for `miimon`
is an error to it, as to bond-cni, and an unknown key nothing.
"""

from __future__ import annotations

from pathlib import Path

_BOND = r"""#!/bin/sh
config=$(cat)
text() { printf %s "$config" | sed -n 's/.*"'"$1"'": *"\([^"]*\)".*/\1/p'; }
number() { printf %s "$config" | sed -n 's/.*"'"$1"'": *\([0-9][0-9]*\).*/\1/p'; }
refuse() { printf '{"code": 7, "msg": "%s"}' "$1"; exit 1; }
members() {
  links=$(printf %s "$config" | sed 's/"prevResult".*//' | grep -o '"links": *\[[^]]*\]')
  printf %s "$links" | grep -o '"name": *"[^"]*"' | cut -d'"' -f4
}
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}' ;;
ADD)
  [ -n "$(text mode)" ] || refuse "no mode"
  [ -n "$(text miimon)" ] || refuse "miimon is no text"
  printf %s "$config" | grep -q '"linksInContainer": *true' || refuse "the members would be on the node"
  pod=$(basename "$CNI_NETNS")
  mac=$(number failOverMac)
  ip -n "$pod" link add "$CNI_IFNAME" type bond mode "$(text mode)" miimon "$(text miimon)" \
    fail_over_mac "${mac:-0}" || refuse "no bond"
  for name in $(members); do
    ip -n "$pod" link set "$name" down && ip -n "$pod" link set "$name" master "$CNI_IFNAME" || refuse "no $name"
    ip -n "$pod" link set "$name" up
  done
  ip -n "$pod" link set "$CNI_IFNAME" up
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}]}'
  ;;
DEL)
  [ -n "$CNI_NETNS" ] || exit 0
  [ -e "$CNI_NETNS" ] || refuse "no namespace"
  pod=$(basename "$CNI_NETNS")
  for name in $(members); do
    ip -n "$pod" link set "$name" down && ip -n "$pod" link set "$name" nomaster && ip -n "$pod" link set "$name" up
  done
  ip -n "$pod" link delete "$CNI_IFNAME"
  exit 0
  ;;
esac
"""

_FAILING = r"""#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exec {real}
{real} >/dev/null
{then}
"""
DIES = "kill -9 $$"
LOSES_THE_NAMESPACE = 'ip netns delete "$(basename "$CNI_NETNS")"; exit 1'


def bond(folder: Path) -> None:
    """A program `bond` in a folder."""
    _write(folder / "bond", _BOND)


def failing(program: Path, path: Path, then: str) -> None:
    """A program that does all that another one does, and then this instead of stating so."""
    _write(path, _FAILING.format(real=program, then=then))


def _write(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)
