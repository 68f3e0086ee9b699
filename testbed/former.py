"""`python -m testbed.former COMMIT`: an older netdra: a clone in `build/former`, and its image, built by its own code.

Called by `make test-upgrade`; `tests/upgrade` installs it before the present one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORMER = ROOT / "build" / "former"


def main() -> int:
    """Parse the arguments, make the clone and its image, and return the exit code."""
    parser = argparse.ArgumentParser(prog="testbed.former")
    parser.add_argument("commit", metavar="COMMIT", help="a tag or commit of this repository")
    commit = parser.parse_args().commit
    shutil.rmtree(FORMER, ignore_errors=True)
    try:
        _git("clone", "--quiet", "--no-checkout", str(ROOT), str(FORMER))
        _git("-C", str(FORMER), "checkout", "--quiet", commit)
        subprocess.run((sys.executable, "-m", "image"), cwd=FORMER, check=True)
    except subprocess.CalledProcessError as problem:
        hint = "; a shallow clone lacks older commits: git fetch --unshallow" if "git" in problem.cmd else ""
        print(f"testbed: '{' '.join(problem.cmd)}' ended with {problem.returncode}{hint}", file=sys.stderr)
        return 1
    return 0


def image() -> Path:
    """The older netdra's image, an OCI archive.

    Raises:
        FileNotFoundError: there is none, or more than one.
    """
    archives = tuple((FORMER / "build" / "image").glob("*.oci.tar"))
    if len(archives) != 1:
        raise FileNotFoundError(f"{FORMER}/build/image has {len(archives)} images: run make test-upgrade FROM=<tag>")
    return archives[0]


def _git(*arguments: str) -> None:
    subprocess.run(("git", *arguments), check=True)


if __name__ == "__main__":
    sys.exit(main())
