"""What runs are called: their method and task in words, with what differs from the usual and from one another."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from emc.envs.registry import TASKS, preset_for
from emc.errors import UserError
from emc.methods import PRESETS, make_method
from emc.runs import RunDirectory
from emc.runs.config import RunConfig, to_json
from emc.runs.jsonl import at
from emc.runs.session import config_of

LENGTH = ("steps",)  # of a budget: runs that differ in nothing else are one, as far as they go


def labels_of(runs: Sequence[RunDirectory]) -> list[str]:
    """A name for each of these runs, which all differ: the method, and those of its changes that not all runs on the environment have."""
    changes = [changes_of(run, runs) for run in runs]
    shared = [common_changes([own for own, rival in zip(changes, runs, strict=True) if same_environment(run, rival)]) for run in runs]
    told = [[phrase for phrase in own if phrase not in left_out] for own, left_out in zip(changes, shared, strict=True)]
    labels = [_briefly([names_of(run)[1], *own]) for run, own in zip(runs, told, strict=True)]
    keys = [(names_of(run), repr(configuration(run).get("env")), label) for run, label in zip(runs, labels, strict=True)]
    return [f"{key[-1]} #{keys[: i + 1].count(key)}" if keys.count(key) > 1 else key[-1] for i, key in enumerate(keys)]


def task_titles(runs: Sequence[RunDirectory]) -> list[str]:
    """The task of each run: the environment, with the fields that differ from its defaults or among these runs. What is 0 is not named
    unless it is a change."""
    titles: list[str] = []
    for run in runs:
        rivals = [configuration(rival).get("env") for rival in runs if same_environment(run, rival)]
        own, usual = configuration(run).get("env"), usual_environment(run) or rivals[0]
        changed = [path for path, _, _ in differences(own, usual)]
        varied = {path for rival in rivals for path, _, _ in differences(rival, rivals[0]) if at(own, *path)}
        ordered = sorted(varied - {*changed}) + changed
        titles.append(", ".join([names_of(run)[0], *(in_words(path, at(own, *path)) for path in ordered)]))
    return distinct(titles, [repr((names_of(run)[0], configuration(run).get("env"))) for run in runs])


def method_label(run: RunDirectory, among: Sequence[RunDirectory]) -> str:
    """The method's name and what differs from its preset, whatever the task."""
    return _briefly([names_of(run)[1], *_method_changes(run, among)])


def same_environment(run: RunDirectory, other: RunDirectory) -> bool:
    """Whether two runs are on environments of one name."""
    return names_of(run)[0] == names_of(other)[0]


def changes_of(run: RunDirectory, among: Sequence[RunDirectory]) -> list[str]:
    """What differs from the method's preset, and what of the budget differs among the runs on this environment, apart from its length."""
    rivals = [configuration(rival).get("budget") for rival in among if same_environment(run, rival)]
    varied = {path for rival in rivals for path, _, _ in differences(rival, rivals[0])} - {LENGTH}
    return [*_method_changes(run, among), *(in_words(path, at(configuration(run), "budget", *path)) for path in sorted(varied))]


def common_changes(changes: Sequence[Sequence[str]]) -> list[str]:
    """What all of several have changed; of one alone nothing is common."""
    return [phrase for phrase in changes[0] if all(phrase in own for own in changes)] if len(changes) > 1 else []


def distinct(labels: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The labels, with a number where equal ones stand for different things."""
    meant = {label: [*dict.fromkeys(key for own, key in zip(labels, keys, strict=True) if own == label)] for label in labels}
    pairs = zip(labels, keys, strict=True)
    return [f"{label} #{meant[label].index(key) + 1}" if len(meant[label]) > 1 else label for label, key in pairs]


def _briefly(phrases: Sequence[str]) -> str:
    return ", ".join(phrases if len(phrases) < 5 else [*phrases[:3], f"{len(phrases) - 3} more changes"])


def _method_changes(run: RunDirectory, among: Sequence[RunDirectory]) -> list[str]:
    """What differs from the preset that is nearest, and which that is, if not the one of the environment."""
    preset, usual = nearest_preset(run)
    if usual is None:
        method_name = names_of(run)[1]
        usual = next(configuration(rival).get("method") for rival in among if names_of(rival)[1] == method_name)
    method = configuration(run).get("method", usual)
    named = [f"preset {preset}"] if preset not in ("", preset_for(names_of(run)[0])) else []
    return [*named, *(in_words(path, found) for path, found, _ in differences(method, usual))]


def nearest_preset(run: RunDirectory) -> tuple[str, Any]:
    """The preset that a run's method is nearest to, and its configuration; none if no preset has the method's name."""
    env_name, name = names_of(run)
    known = _presets(name, env_name)
    if not known:
        return "", None
    preset = min(known, key=lambda preset: len([*differences(configuration(run).get("method"), known[preset])]))
    return preset, known[preset]


@functools.cache
def _presets(method_name: str, env_name: str) -> Mapping[str, Any]:
    return {preset: to_json(make_method(method_name, preset, env_name)) for preset, table in PRESETS.items() if method_name in table}


def usual_environment(run: RunDirectory) -> Any:
    """The default configuration of a run's environment; None if there is no task of that name."""
    name = names_of(run)[0]
    return _usual_environment(name) if name in TASKS else None


@functools.cache
def _usual_environment(env_name: str) -> Any:
    return to_json(TASKS[env_name].make())


def differences(found: Any, usual: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Where two configurations differ, and the two values there; a part of another type is one difference."""
    if isinstance(found, dict) and isinstance(usual, dict) and found.get("type") == usual.get("type"):
        for name in dict.fromkeys([*cast(dict[str, Any], usual), *cast(dict[str, Any], found)]):
            yield from differences(found.get(name), usual.get(name), (*path, str(name)))
    elif found != usual:
        yield path, found, usual


def in_words(path: Sequence[str], value: Any) -> str:
    """A changed field, briefly: `gamma 0.99`, `uniform replay`, `no memory`."""
    field = path[-1].replace("_", " ") if path else "configuration"
    match value:
        case {"type": str(kind)}:
            words = " ".join(w if w.isupper() else w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+", kind))
            return words if words.lower().endswith(field) else f"{words} {field}"
        case bool():
            said = "on" if value else "off"
        case int() if 10_000 <= value < 2**63:
            said = steps_in_words(value)
        case float():
            said = f"{value:.12g}"
        case _:
            said = str(value)
    return f"{' '.join(path).replace('_', ' ') or field} {said:.40}"


def configuration(run: RunDirectory) -> dict[str, Any]:
    """Every field of a run; those that are younger than the run have their defaults."""
    if run not in _CONFIGURATIONS:
        config, asked = known_config(run), run.manifest.get("config")
        _CONFIGURATIONS[run] = to_json(config) if config is not None else cast(dict[str, Any], asked) if isinstance(asked, dict) else {}
    return _CONFIGURATIONS[run]


def known_config(run: RunDirectory) -> RunConfig | None:
    """What a run was asked to do; None if this version of emc cannot make it."""
    if run not in _CONFIGS:
        try:
            _CONFIGS[run] = config_of(run)
        except UserError:
            _CONFIGS[run] = None
    return _CONFIGS[run]


# A manifest is written once, and comparing many runs asks for each of them many times.
_CONFIGS: weakref.WeakKeyDictionary[RunDirectory, RunConfig | None] = weakref.WeakKeyDictionary()
_CONFIGURATIONS: weakref.WeakKeyDictionary[RunDirectory, dict[str, Any]] = weakref.WeakKeyDictionary()


def names_of(run: RunDirectory) -> tuple[str, str]:
    """The names of a run's environment and method."""
    return str(run.manifest.get("env_name")), str(run.manifest.get("method_name"))


def steps_in_words(steps: float) -> str:
    """A number of steps on an axis: 500, 20k, 1.5M."""
    return f"{steps / 1e6:g}M" if abs(steps) >= 1e6 else f"{steps / 1e3:g}k" if abs(steps) >= 1e3 else f"{steps:g}"


def about(steps: float) -> str:
    """Steps to three digits."""
    return steps_in_words(float(f"{steps:.3g}"))


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def cut(text: str, most: int = 70) -> str:
    """Text that is not too long for a legend."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
