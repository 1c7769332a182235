"""`python -m emc` is the `emc` command."""

from emc.child import follow_parent
from emc.cli import main

follow_parent()
main()
