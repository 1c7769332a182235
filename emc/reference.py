"""Every method as a page: what it is, its equation, its parts and constants, read from the dataclasses that run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from emc.methods import METHODS, PRESETS, Entry, Method, make_method

# By the class of a part, in the letters of the papers; a part that is not here is described by its docstring.
EQUATIONS: Mapping[str, str] = {
    "RecurrentQ": "Qᵢ(τᵢ, aᵢ) from a GRU over observation, last action and agent id",
    "Maven": "Qᵢ(τᵢ, aᵢ; z), z ~ π(z | s₀) for a whole episode;  L − weight · log q(z | τ)",
    "Rode": "a role ρᵢ every few steps, by Q(τᵢ, ρ) = zᵢ · z_ρ;  then Qᵢ(τᵢ, a) = hᵢ · e(a), greedy among the actions of ρᵢ",
    "Independent": "each agent by itself: no Q_tot",
    "VDN": "Q_tot(τ, a) = Σᵢ Qᵢ(τᵢ, aᵢ)",
    "QMIX": "Q_tot(τ, a) = f_s(Q₁, …, Qₙ),  ∂Q_tot/∂Qᵢ ≥ 0",
    "QPLEX": "Q_tot(τ, a) = Σᵢ Vᵢ(τ) + Σᵢ λᵢ(τ, a) · Aᵢ(τ, aᵢ),  λᵢ > 0",
    "AttentionQPLEX": "Q_tot(τ, a) = Σᵢ Vᵢ(τ) + Σᵢ λᵢ(τ, a) · Aᵢ(τ, aᵢ),  λᵢ > 0 from attention",
    "TD": "L = (r + γ Q⁻_tot(τ', argmax Q') − Q_tot(τ, a))²",
    "Weighted": "L = w(s, a) · (r + γ Q*(τ', argmax Q') − Q_tot(τ, a))²,  w = 1 where a may be best, else α",
    "Qtran": "L = L_td(Q_jt) + λ_opt (Σᵢ Qᵢ(āᵢ) + V(s) − Q_jt(ā))² + λ_nopt min(Σᵢ Qᵢ(aᵢ) + V(s) − Q_jt(a), 0)²,  ā greedy",
    "CentralTD": "the same for a central critic Q(s, a)",
    "ValueCuriosity": "r_int = 1/n Σᵢ ‖Q̂ᵢ(τᵢ, ·) − Qᵢ(τᵢ, ·)‖  (Eq. 3);  r + η · r_int",
    "RND": "r_int = ‖f̂(x) − f(x)‖, f random and fixed, x the next state or the agents' histories;  r + η · r_int",
    "EpisodicMemory": "H(φ(s)) = max(H, R) at every visit (Eq. 6);  L + λ (r + γ H(φ(s')) − Q_tot)² (Eq. 5, 7, 8)",
    "Uniform": "episodes drawn alike",
    "Prioritised": "episodes drawn ∝ (mean squared TD error) ^ exponent",
}
SHARED = ("policy", "mixer", "loss", "curiosity", "memory", "replay", "optimiser", "epsilon")


def methods_page() -> str:
    """Markdown about all methods."""
    return "\n\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Methods"
    yield (
        "A method is a frozen dataclass of parts; `emc train METHOD ENV --mixer NAME --curiosity.field VALUE …` changes any of them. This\n"
        f"page is written from those dataclasses. Constants are those of the preset `{next(iter(PRESETS))}`; where another preset has\n"
        "others, they are named. Letters: τ histories, a joint actions, s the state, r the team's reward, ' the next moment, ⁻ a target\n"
        "network, γ the discount, η and λ the weights of curiosity and memory."
    )
    rows = [f"| [{name}](#{name}) | {entry.about} | {entry.paper} |" for name, entry in METHODS.items()]
    yield "\n".join(["| method | what it is | from |", "|---|---|---|", *rows])
    yield "## What every method shares"
    yield _table(Method(), skip=SHARED)
    for name, entry in METHODS.items():
        yield from _method(name, entry)


def _method(name: str, entry: Entry) -> Iterator[str]:
    method = entry.method
    yield f"## {name}"
    yield f"{entry.about[:1].upper()}{entry.about[1:]} ({entry.paper})."
    parts = [getattr(method, part) for part in SHARED[:6]]
    shown = [_equation(part) for part in parts if not type(part).__name__.startswith("No")]
    yield "\n".join(["```text", *shown, "```"])
    yield "\n".join(["| part | constants |", "|---|---|", *(f"| {part} | {_in_words(getattr(method, part))} |" for part in SHARED)])
    own = [f"`{path}` {value}" for path, value, _ in _differences(method, Method()) if "." not in path and path not in SHARED]
    if own:
        yield f"Of what methods share it changes {', '.join(own)}."
    for preset in [*PRESETS][1:]:
        changed = [f"`{path}` {value}" for path, value, _ in _differences(make_method(name, preset), method)]
        if changed:
            yield f"Preset `{preset}`: {', '.join(changed)}."


def _equation(part: Any) -> str:
    return EQUATIONS.get(type(part).__name__) or inspect.cleandoc(type(part).__doc__ or type(part).__name__).partition("\n")[0]


def _table(part: Any, skip: tuple[str, ...] = ()) -> str:
    remarks = _remarks(type(part))
    rows = [f"| `{f.name}` | {getattr(part, f.name)} | {remarks.get(f.name, '')} |" for f in dataclasses.fields(part) if f.name not in skip]
    return "\n".join(["| field | value | |", "|---|---|---|", *rows])


def _remarks(kind: type) -> dict[str, str]:
    """What the source says of each field behind it."""
    found: dict[str, str] = {}
    for line in inspect.getsource(kind).splitlines():
        field, _, remark = line.partition("#")
        name, colon, _ = field.strip().partition(":")
        if colon and remark and name.isidentifier():
            found[name] = remark.strip().replace("|", "\\|")
    return found


def _in_words(part: Any) -> str:
    """A part and its constants."""
    inside = ", ".join(f"{field.name} {_value(getattr(part, field.name))}" for field in dataclasses.fields(part))
    return f"{type(part).__name__}{f': {inside}' if inside else ''}"


def _value(value: Any) -> str:
    return f"({_in_words(value)})" if dataclasses.is_dataclass(value) else str(value)


def _differences(found: Any, usual: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Where two methods differ; a part of another type is one difference."""
    for field in dataclasses.fields(found):
        mine, theirs = getattr(found, field.name), getattr(usual, field.name)
        here = (*path, field.name)
        if dataclasses.is_dataclass(mine) and type(mine) is type(theirs):
            yield from _differences(mine, theirs, here)
        elif mine != theirs:
            yield ".".join(here), _value(mine), _value(theirs)
