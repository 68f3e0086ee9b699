"""`python -m netdra`, and the program `netdra`."""

import atexit
import gc
import sys

_YOUNG_OBJECTS = 50_000
"""So many new objects bring a garbage collection, and not 700: most commands end before, and keep what they import."""


def main() -> None:
    """Run the command line; Ctrl-C has its exit code while the command line is still being imported, too."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # Python ends with a collection of all objects: a tenth of the time of `netdra --help`
    try:
        from netdra.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
