"""`python -m emc` is the `emc` command."""

from emc.cli import main

main()
