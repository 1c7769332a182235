"""`python -m emc` is the `emc` command."""

from emc.cli import main
from emc.processes import follow_parent

follow_parent()
main()
