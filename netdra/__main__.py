"""`python -m netdra`, and the program `netdra`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C has its exit code while the command line is still being imported, too."""
    try:
        from netdra.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
