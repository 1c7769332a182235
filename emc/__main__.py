"""`emc` and `python -m emc`: the command as a process of its own."""

import sys

from emc.allocator import begin_with_huge_pages
from emc.cli import main
from emc.processes import follow_parent

TRAINING = ("train", "resume", "demo")  # commands that train in this process


def command() -> None:
    """Be the `emc` command."""
    if sys.argv[1:] and sys.argv[1] in TRAINING:
        begin_with_huge_pages()
    follow_parent()
    main()


if __name__ == "__main__":
    command()
