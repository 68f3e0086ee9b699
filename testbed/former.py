"""`python -m testbed.former [COMMIT]`: an older netdra, cloned to `build/former`; its own code builds its image.

Part of `make test`, with the commit in `release/previous`; `make test-upgrade FROM=…` takes another one.
`tests/upgrade` installs the older netdra before the present one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORMER = ROOT / "build" / "former"
PREVIOUS = ROOT / "release" / "previous"
"""The file with the commit or tag of the last release."""


def main() -> int:
    """Parse the arguments, make the clone and its image, and return the exit code."""
    parser = argparse.ArgumentParser(prog="testbed.former")
    parser.add_argument(
        "commit", metavar="COMMIT", nargs="?", default=previous(), help=f"a tag or commit (default: {previous()})"
    )
    commit = parser.parse_args().commit
    if not _has(commit):
        # A shallow clone lacks it.
        subprocess.run(("git", "-C", str(ROOT), "fetch", "--quiet", "--depth=1", "origin", commit), check=False)
    if not _has(commit):
        print(f"testbed: {ROOT} has no commit {commit}; get it by git fetch --unshallow --tags", file=sys.stderr)
        return 1
    shutil.rmtree(FORMER, ignore_errors=True)
    try:
        _git("clone", "--quiet", "--no-checkout", "--shared", str(ROOT), str(FORMER))
        _git("-C", str(FORMER), "checkout", "--quiet", commit)
        subprocess.run((sys.executable, "-m", "image"), cwd=FORMER, check=True)
    except subprocess.CalledProcessError as problem:
        print(f"testbed: '{' '.join(problem.cmd)}' ended with {problem.returncode}", file=sys.stderr)
        return 1
    return 0


def previous() -> str:
    """The commit or tag of the last release."""
    return PREVIOUS.read_text(encoding="utf-8").strip()


def image() -> Path:
    """The older netdra's image, an OCI archive.

    Raises:
        FileNotFoundError: none exists, or more than one.
    """
    archives = tuple((FORMER / "build" / "image").glob("*.oci.tar"))
    if len(archives) != 1:
        raise FileNotFoundError(f"{FORMER}/build/image has {len(archives)} images: run python3 -m testbed.former")
    return archives[0]


def _has(commit: str) -> bool:
    command = ("git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}")
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _git(*arguments: str) -> None:
    subprocess.run(("git", *arguments), check=True)


if __name__ == "__main__":
    sys.exit(main())
