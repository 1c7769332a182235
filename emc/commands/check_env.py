"""`emc check-env ENV`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from tyro.conf import Positional, arg

from emc.envs import make_env
from emc.errors import UserError
from emc.flags import parse, parse_known
from emc.runs.trial import promises
from emc.user_input import in_one_line

ABOUT = """Does an environment keep its promises? For your own ones: plays random episodes and says what of the interface is broken.

Examples:
  emc check-env my_envs:Meeting
  emc check-env my_envs:Meeting --env.length 9
  emc check-env smaclite/3m"""


@dataclasses.dataclass(frozen=True)
class Named:
    """What decides which other flags there are."""

    env: Annotated[str, Positional, arg(metavar="ENV")]  # one of `emc envs`, or your own as module:Class


def main(words: list[str]) -> None:
    named, rest = parse_known("emc check-env", Named, words, ABOUT)
    usual = make_env(named.env)
    kind = dataclasses.make_dataclass("Flags", [("env", type(usual))], frozen=True)
    given: Any = parse(f"emc check-env {named.env}", kind, rest, kind(usual), ABOUT)
    findings = promises(given.env)
    for finding in findings:
        word = "BROKEN" if not finding.kept else "remark" if finding.wish else "kept  "
        print(f"{word}  {in_one_line(finding.promise + (f': {finding.detail}' if finding.detail else ''))}")
    if broken := sum(not finding.kept for finding in findings):
        raise UserError(f"{named.env} breaks {broken} of {len(findings)} promises; emc docs your-environment shows how to keep them")
