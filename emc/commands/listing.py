"""Commands that say what there is: `methods`, `envs`, `check-env` and `doctor`."""

from __future__ import annotations

import dataclasses
from typing import Any

from emc.commands.parsing import Nothing, parse, take
from emc.errors import UserError
from emc.names import in_one_line

NUMBERS = ("gamma", "epsilon", "optimiser", "learning_rate", "gradient_clip", "batch_episodes", "episodes_per_update", "target_interval")


def methods(words: list[str]) -> None:
    from emc.curiosity import NoCuriosity
    from emc.memory import NoMemory
    from emc.methods import METHODS, Method

    parse("emc methods", Nothing, words)
    usual = Method()
    for name, entry in METHODS.items():
        method = entry.method
        parts = (method.policy, method.mixer, method.loss, method.curiosity, method.memory, method.replay)
        composed = " + ".join(_in_short(part) for part in parts if part not in (NoCuriosity(), NoMemory()))
        changed = [field for field in NUMBERS if vars(method)[field] != vars(usual)[field]]
        own = "".join(f", {field}={_in_short(vars(method)[field])}" for field in changed)
        print(f"{name:<12}  {entry.about} ({entry.paper}): {composed}{own}")


def _in_short(part: Any) -> str:
    """A part's name and what of it is not as usual; anything else as it is."""
    if not dataclasses.is_dataclass(part):
        return str(part)
    usual = type(part)()
    changed = [
        f"{field.name}={_in_short(value)}"
        for field in dataclasses.fields(part)
        if (value := getattr(part, field.name)) != getattr(usual, field.name)
    ]
    return type(part).__name__ + (f"({', '.join(changed)})" if changed else "")


def envs(words: list[str]) -> None:
    from emc.envs import TASKS

    parse("emc envs", Nothing, words)
    width = max(map(len, TASKS))
    for name, entry in TASKS.items():
        print(f"{name:<{width}}  {entry.description}")
    families = ("smax/MAP", "jaxmarl/NAME", "pettingzoo/MODULE", "smac/MAP", "smacv2/MAP", "smaclite/MAP", "pymarl/module:callable")
    print("\nlbf/NAME takes any other name of level-based foraging too, such as lbf/2s-8x8-2p-2f-coop.")
    print(f"Of other packages, where installed: {', '.join(families)}. Your own: module:Class (emc docs your-environment).")


def check_env(words: list[str]) -> None:
    from emc.envs import make_env
    from emc.runs.trial import promises

    rest = take(words, "ENV")
    usual = make_env(words[0])
    flags = dataclasses.make_dataclass("Flags", [("env", type(usual))], frozen=True)
    env = parse(f"emc check-env {words[0]}", flags, rest, flags(usual)).env
    findings = promises(env)
    for finding in findings:
        word = "BROKEN" if not finding.kept else "remark" if finding.wish else "kept  "
        print(f"{word}  {in_one_line(finding.promise + (f': {finding.detail}' if finding.detail else ''))}")
    if broken := sum(not finding.kept for finding in findings):
        raise UserError(f"{words[0]} breaks {broken} of {len(findings)} promises; emc docs your-environment shows how to keep them")


def doctor(words: list[str]) -> None:
    from emc.doctor import diagnosis

    parse("emc doctor", Nothing, words)
    for line in diagnosis():
        print(line)
