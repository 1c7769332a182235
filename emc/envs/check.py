"""Does an environment keep its promises? Random episodes, and a line for every promise that was tested."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs.base import Environment, HasMap, HasSpec, checked_spec
from emc.envs.hosted import Hosted
from emc.envs.sizes import MOST, MOST_CELLS, is_map_shape
from emc.envs.workers import Failure, Workers
from emc.errors import MISTAKES, in_short
from emc.types import EnvSpec

EPISODES = 4


@dataclasses.dataclass(frozen=True)
class Finding:
    """One promise."""

    promise: str
    kept: bool
    detail: str = ""
    wish: bool = False  # whether one can train without it: then it counts as kept


@dataclasses.dataclass(frozen=True)
class Moment:
    """A reset or a step, as numpy arrays."""

    obs: np.ndarray
    state: np.ndarray
    available: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    won: bool

    @classmethod
    def of(cls, shown: Any) -> Moment:
        shown = jax.device_get(shown)
        flags = (bool(np.asarray(shown.terminated)), bool(np.asarray(shown.truncated)), bool(np.asarray(shown.won)))
        arrays = (np.asarray(shown.obs), np.asarray(shown.state), np.asarray(shown.available))
        return cls(*arrays, float(np.asarray(shown.reward)), *flags)

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


Player = tuple[Callable[[int], Moment], Callable[[np.ndarray, int], Moment]]  # reset with a seed; step with actions and a seed


class _Unplayable(Exception):
    """Why a worker could not go on."""


def check(env: HasSpec, episodes: int = EPISODES, patience: int = 1) -> list[Finding]:
    """Every promise that can be tested by playing some episodes; each may be tried as often as there is patience with failing workers."""
    spec = checked_spec(type(env).__name__, env)
    findings = list(_spec(spec))
    if not all(finding.kept for finding in findings):
        return findings
    if isinstance(env, Hosted):
        with contextlib.closing(Workers(env, 1)) as workers:
            return [*findings, *_played(spec, _host_player(workers), episodes, patience, repeats=False)]
    if not isinstance(env, Environment):
        return [*findings, Finding("it has the methods spec, reset and step", kept=False)]
    findings += _compiles(env, spec)
    return [*findings, *_played(spec, _jax_player(env), episodes, patience, repeats=True)] if all(f.kept for f in findings) else findings


def _spec(spec: EnvSpec) -> Iterator[Finding]:
    sizes = {name: getattr(spec, name) for name in ("n_agents", "n_actions", "obs_size", "state_size", "episode_limit")}
    wrong = [f"{name}={value}" for name, value in sizes.items() if type(value) is not int or not 1 <= value <= MOST[name]]
    yield Finding("sizes in its spec are whole numbers of at least 1, and none is too large", not wrong, ", ".join(wrong))
    shape: Any = spec.map_shape
    drawable = is_map_shape(shape) and shape[0] * shape[1] <= MOST_CELLS
    yield Finding(
        "a map has a number of rows and one of columns, and not too many", drawable, "" if drawable else f"map_shape={shape!r:.40}"
    )


def _compiles(env: Environment, spec: EnvSpec) -> Iterator[Finding]:
    """A JAX environment must trace, on its own and side by side."""
    keys = jax.random.split(jax.random.key(0), 2)
    before = str(np.random.get_state())  # noqa: NPY002, the generator that everybody shares; Python's own moves by itself under type checkers
    try:
        world, first = jax.eval_shape(jax.vmap(env.reset), keys)
        again, second = jax.eval_shape(jax.vmap(env.step), world, jnp.zeros((2, spec.n_agents), jnp.int32), keys)
        frozen = before != str(np.random.get_state()) or _traced(env, spec, 0) != _traced(env, spec, 1)  # noqa: NPY002
        where = _occupied(env, first.state)
    except MISTAKES as error:  # whatever the user's class does wrong
        yield Finding("it compiles, and several run side by side", kept=False, detail=in_short(error))
        return
    yield Finding("it compiles, and several run side by side", kept=True)
    detail = "Python or NumPy draws a number once, when it is compiled, and it stays: use jax.random with the key" if frozen else ""
    yield Finding("everything random comes from the key", not frozen, detail)
    before, after = (jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree) for tree in (world, again))
    yield Finding(
        "a step leaves a world of the same shapes and types", before == after, "" if before == after else f"{before} became {after}"
    )

    if where is not None:
        said = "" if where == spec.map_shape else f"occupancy returns {where}, map_shape is {spec.map_shape}"
        yield Finding("its agents are counted on the cells of its map", not said, said)
    wrong = [said for shown in (first, second) for said in _wrong_types(shown)]
    yield Finding("the reward is one float; terminated, truncated and won are true or false", not wrong, ", ".join(dict.fromkeys(wrong)))


def _occupied(env: Environment, states: Any) -> tuple[int, ...] | None:
    """The shape of the map on which an environment counts its agents, if it has one."""
    if not isinstance(env, HasMap) or env.spec.map_shape == (0, 0):
        return None
    return jax.eval_shape(env.occupancy, jax.ShapeDtypeStruct(states.shape[1:], states.dtype)).shape


def _traced(env: Environment, spec: EnvSpec, seed: int) -> str:
    """An episode's first two moments as a program, with all that was known when it was written: what is drawn then writes another one.

    JAX remembers what compiled functions inside it were traced to; under another setting, which changes no program, it traces them again.
    """

    def begin(key: Any) -> Any:
        world, shown = env.reset(key)
        return shown, env.step(world, jnp.zeros(spec.n_agents, jnp.int32), key)

    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    usual: Any = jax.config.values["jax_numpy_rank_promotion"]
    setting = usual if seed == 0 else "warn" if usual == "allow" else "allow"
    try:
        with jax.numpy_rank_promotion(setting), warnings.catch_warnings(action="ignore"):
            program = jax.make_jaxpr(begin)(jax.random.key(0))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
    written = re.sub("0x[0-9a-f]+", "", str(program))  # where functions happen to be in memory
    return f"{written}{[np.asarray(value).tolist() for value in program.consts if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key)]}"


def _wrong_types(shown: Any) -> Iterator[str]:
    """What of the reward and the flags of two moments side by side is of another type or shape."""
    wanted: dict[str, Any] = {"reward": jnp.floating, **dict.fromkeys(("terminated", "truncated", "won"), jnp.bool_)}
    for name, kind in wanted.items():
        value = getattr(shown, name)
        if value.shape != (2,) or not jnp.issubdtype(value.dtype, kind):
            yield f"{name} is {value.dtype}{list(value.shape[1:]) or ''}"


def _jax_player(env: Environment) -> Player:
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    world: list[Any] = [None]

    def begin(seed: int) -> Moment:
        world[0], shown = reset(jax.random.key(seed))
        return Moment.of(shown)

    def go_on(action: np.ndarray, seed: int) -> Moment:
        world[0], shown = step(world[0], action, jax.random.key(seed))
        return Moment.of(shown)

    return begin, go_on


def _host_player(workers: Workers) -> Player:
    """The only one of these workers, which may die or hang as in training."""

    def answered() -> Moment:
        (answer,) = workers.answers([0]).values()
        if isinstance(answer, Failure):
            raise _Unplayable(answer.reason)
        return Moment.of(answer)

    def begin(seed: int) -> Moment:
        workers.reset(0, seed)
        return answered()

    def go_on(action: np.ndarray, seed: int) -> Moment:
        workers.step(0, action)
        return answered()

    return begin, go_on


def _episode(spec: EnvSpec, player: Player, seed: int) -> list[Moment]:
    """A random episode, or as much of it as the limit allows."""
    begin, go_on = player
    dice = np.random.default_rng(seed)
    moments = [begin(seed)]
    for t in range(spec.episode_limit):
        lots = dice.random(moments[-1].available.shape) * moments[-1].available
        moments.append(go_on(lots.argmax(axis=-1), 1000 * seed + t))
        if moments[-1].over:
            break
    return moments


def _episode_with_retries(spec: EnvSpec, player: Player, seed: int, patience: int) -> list[Moment]:
    """A random episode, tried again where a worker fails."""
    for _ in range(patience - 1):
        with contextlib.suppress(_Unplayable):
            return _episode(spec, player, seed)
    return _episode(spec, player, seed)


def _played(spec: EnvSpec, player: Player, count: int, patience: int, repeats: bool) -> Iterator[Finding]:
    """Random episodes; that they can be repeated is a promise if `repeats`, else a wish."""
    try:
        if repeats:
            _episode(spec, player, 0)  # compiles what there is to compile
        began = time.perf_counter()
        episodes = [_episode_with_retries(spec, player, seed, patience) for seed in range(count)]
    except _Unplayable as error:
        yield Finding("random episodes can be played", kept=False, detail=str(error))
        return
    except MISTAKES as error:
        yield Finding("random episodes can be played", kept=False, detail=in_short(error))
        return
    seconds = time.perf_counter() - began
    moments = [moment for episode in episodes for moment in episode]
    yield from _moments(spec, moments)
    yield from _beginnings_and_ends(episodes)
    try:
        again = _episode_with_retries(spec, player, 0, patience)
    except _Unplayable as error:
        yield Finding("random episodes can be played", kept=False, detail=str(error))
        return
    same = len(again) == len(episodes[0]) and all(_same(one, other) for one, other in zip(again, episodes[0], strict=True))
    yield Finding(
        f"the same episode comes again given the {'key' if repeats else 'seed'}",
        kept=same or not repeats,
        detail="" if same else "it does not, so that a run cannot be repeated exactly",
        wish=not same and not repeats,
    )
    ends = sum(episode[-1].terminated for episode in episodes)
    lengths = [len(episode) - 1 for episode in episodes]
    speed = f"{len(moments) / seconds:,.0f} moments a second one at a time"
    detail = f"{speed}, episodes of {min(lengths)} to {max(lengths)} steps, {ends} of {count} terminated"
    yield Finding("random episodes can be played", kept=True, detail=detail)


def _moments(spec: EnvSpec, moments: Sequence[Moment]) -> Iterator[Finding]:
    """What holds at every moment: shapes, masks, numbers, and how a moment ends."""

    def every(promise: str, test: Callable[[Moment], bool], tell: Callable[[Moment], str]) -> Finding:
        broken = next((moment for moment in moments if not test(moment)), None)
        return Finding(promise, broken is None, "" if broken is None else tell(broken))

    wanted = {"obs": (spec.n_agents, spec.obs_size), "state": (spec.state_size,), "available": (spec.n_agents, spec.n_actions)}
    for name, shape in wanted.items():
        yield every(
            f"{name} always has the shape {shape}",
            lambda m, n=name, s=shape: getattr(m, n).shape == s,
            lambda m, n=name: str(getattr(m, n).shape),
        )
    yield every("available is true or false", lambda m: m.available.dtype == bool, lambda m: str(m.available.dtype))
    yield every(
        "every agent always has an available action",
        lambda m: bool(m.available.any(axis=-1).all()),
        lambda m: str(m.available.astype(int).tolist()),
    )
    for name, kind in (("obs", spec.obs_dtype), ("state", spec.state_dtype)):
        yield every(
            f"{name} can be stored as {kind}",
            lambda m, n=name, k=kind: _storable(getattr(m, n), k),
            lambda m, n=name: f"it goes from {getattr(m, n).min():g} to {getattr(m, n).max():g}",
        )
    finite = "observations, states and rewards are finite numbers"
    yield every(
        finite,
        lambda m: bool(np.isfinite(m.obs).all() and np.isfinite(m.state).all() and np.isfinite(m.reward)),
        lambda m: f"reward {m.reward}",
    )
    yield every("no moment is both terminated and truncated", lambda m: not (m.terminated and m.truncated), lambda m: "both are true")
    yield every("a won moment is the last", lambda m: not m.won or m.over, lambda m: "won, but neither terminated nor truncated")


def _beginnings_and_ends(episodes: Sequence[Sequence[Moment]]) -> Iterator[Finding]:
    """What holds at the first and the last moment of an episode."""
    fresh = [episode[0] for episode in episodes]
    begun = not any(m.over or m.reward > 0 or m.reward < 0 for m in fresh)  # that rewards are numbers is a promise of its own
    yield Finding("a reset starts an episode that is not over, with no reward", begun)
    lasting = [len(episode) - 1 for episode in episodes if not episode[-1].over]
    yield Finding(
        "every episode ends by its limit",
        not lasting,
        f"not over after {lasting[0]} steps: set terminated or truncated there" if lasting else "",
    )


def _storable(values: np.ndarray, name: str) -> bool:
    """Whether numbers survive being stored as a type; a float may be rounded, but not become infinite."""
    kind, values = jnp.dtype(name), values[np.isfinite(values)]  # that all are finite is a promise of its own
    with np.errstate(over="ignore", invalid="ignore"):
        stored = values.astype(kind)
        if jnp.issubdtype(kind, jnp.floating):
            return bool(np.isfinite(stored).all())
        return bool((stored.astype(values.dtype) == values).all())


def _same(one: Moment, other: Moment) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))
