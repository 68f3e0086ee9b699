"""`python -m netdra`."""

from netdra.cli.main import main

main()
