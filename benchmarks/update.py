"""One gradient step: its share of the matrix-product peak, counted on played moments only, and where its time goes.

    python benchmarks/update.py                      all sizes
    python benchmarks/update.py 2s3z MMM2            some of them
    python benchmarks/update.py --profile            what the compiled program spends its time on, instruction by instruction
    python benchmarks/update.py --products           products of the core's sizes, each alone in a loop
    python benchmarks/update.py --growth             how it grows with agents, length and batch (benchmarks/results/growth.png)

Work is counted as the products of the agents' layers that the method cannot avoid, at the moments that were really played: six forward
passes for EMC, and for each of its three networks that learn the gradients of all weights and of all inputs but those of the first layer,
which are data. "Everything else" is curiosity's own mixer and distances, clearing, optimisers and metrics. Gridworld episodes have full
length; battles are what a random team played, 32 of them.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import RESULTS, keep, machine, seconds, sgemm_peak

from emc.allocator import begin_with_huge_pages, keep_freed_memory
from emc.envs import make_env
from emc.lanes import Lanes, lay_episodes
from emc.losses.td import mix_after, mix_now
from emc.methods import Method, make_method
from emc.parts import Actors, Seen
from emc.runs.session import LOOK_SECONDS
from emc.training.learner import actors_of, init_learner, learn
from emc.training.replay import Replay
from emc.training.rollout import play
from emc.types import EnvSpec, Episodes

PROFILED = ("products of the recurrent core", "the rest of the recurrent core", "mixers and other loops", "clearing", "else")
SIZES = {
    "gridworld": ("emc-vdn", "released"),
    **dict.fromkeys(("3m", "2s3z", "3s_vs_5z", "MMM2", "27m_vs_30m", "corridor"), ("emc-qplex", "starcraft")),
}


def played(env_name: str, episodes: int) -> tuple[EnvSpec, Episodes]:
    """Episodes of a random team, which on the gridworld have full length but for a rare success."""
    env, policy = make_env(env_name), make_method("vdn").policy
    net = policy.init_net(jax.random.key(0), env.spec)
    return env.spec, jax.jit(lambda key: play(env, Actors(policy, net, ()), key, jnp.ones(()), episodes)[0])(jax.random.key(1))


def operations(spec: EnvSpec, moments: int, method: Method) -> float:
    """Floating-point operations of one update on so many moments."""
    hidden = method.policy.hidden
    inputs = spec.obs_size + spec.n_actions + spec.n_agents
    first, rest = inputs * hidden, 6 * hidden * hidden + hidden * spec.n_actions
    return 2.0 * moments * spec.n_agents * (6 * (first + rest) + 3 * (first + 2 * rest))


def laid(method: Method, spec: EnvSpec, batch: Episodes) -> Lanes:
    return jax.jit(lambda batch: lay_episodes(batch, method.layout(spec), partial(method.policy.inputs, n_actions=spec.n_actions)))(batch)


def stored(method: Method, spec: EnvSpec, episodes: Episodes) -> Replay:
    """The episodes as training has them: packed."""
    count = episodes.reward.shape[0]
    return jax.jit(lambda replay, fresh: replay.add(fresh, method.replay))(Replay.empty(spec, count), episodes)


def updates(method: Method, spec: EnvSpec, replay: Replay) -> tuple[Callable[[], Any], int]:
    """A call of gradient steps, as training has them, from packed episodes to new weights, for as long as the host looks away; how many."""
    state, layout = init_learner(method, spec, jax.random.key(1)), method.layout(spec)
    rows = jnp.arange(replay.capacity)

    @jax.jit
    def several(state: Any, replay: Replay, count: int) -> Any:
        def one(i: Any, state: Any) -> Any:
            # Which rows are read depends on the step, so that laying them out stays inside the loop.
            return learn(method, state, replay.lay((rows + i) % replay.capacity, layout, method.policy), i)[0]

        return jax.lax.fori_loop(0, count, one, state)

    count = max(1, int(LOOK_SECONDS / seconds(lambda: several(state, replay, 1), repeats=3)))
    return lambda: several(state, replay, count), count


def time_update(method: Method, spec: EnvSpec, replay: Replay) -> float:
    """Seconds of one gradient step."""
    several, count = updates(method, spec, replay)
    return seconds(several, repeats=5) / count


def parts(method: Method, spec: EnvSpec, replay: Replay, batch: Lanes) -> dict[str, float]:
    """Seconds of the parts of an update, each compiled alone."""
    state = init_learner(method, spec, jax.random.key(1))
    actors = actors_of(method, state)
    seen = Seen(state.values.online, jax.jit(lambda a, b: a.unroll(b))(actors, batch))

    def gradient(net: Any, batch: Lanes) -> Any:
        return jax.grad(lambda net: jnp.sum(actors.unroll_with(net, batch).q[..., 0]))(net)

    def mixed(net: Any, seen: Seen, batch: Lanes) -> Any:
        def value(net: Any, q: Any) -> Any:
            nets, run = dataclasses.replace(seen.nets, mixer=net), dataclasses.replace(seen.unroll, q=q)
            return jnp.sum(mix_now(method.mixer, Seen(nets, run), batch).q)

        return jax.grad(value, argnums=(0, 1))(net, seen.unroll.q)

    def time(function: Any, *arguments: Any) -> float:
        compiled = jax.jit(function)
        return seconds(lambda: compiled(*arguments), repeats=5)

    return {
        "laying the batch out": time(lambda r: r.lay(jnp.arange(r.capacity), method.layout(spec), method.policy), replay),
        "three networks forward": 3 * time(lambda a, b: a.unroll(b).q, actors, batch),
        "three networks forward and backward": 3 * time(gradient, actors.net, batch),
        "mixer forward and backward": time(mixed, seen.nets.mixer, seen, batch),
        "target mixer": time(lambda s, b: mix_after(method.mixer, s, b, s), seen, batch),
        "memory": time(lambda m, b: method.memory.recall(m, b, method.gamma)[1], state.memory, batch),
    }


def profile(names: list[str]) -> None:
    """Shares of an update's time, from a trace of its instructions: they add up to all of it. What tracing adds is kept too."""
    result = machine()
    for name in names:
        method = make_method(*SIZES[name], name)
        spec, episodes = played(name, method.batch_episodes)
        batch, replay = laid(method, spec, episodes), stored(method, spec, episodes)
        several, count = updates(method, spec, replay)
        untraced = seconds(several, repeats=5) / count
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(several())
            spans = spans_in(next(Path(folder).rglob("*.xplane.pb")))
        spent = dict.fromkeys(PROFILED, 0.0)
        moments = int(batch.moments)
        for title, time, inner in outermost(spans):
            products = sum(span.time for span in inner if span.is_product)
            if sum(span.is_product for span in inner) >= 3 * moments:  # a loop over the moments, with a product for each layer
                spent[PROFILED[0]] += products
                spent[PROFILED[1]] += time - products
            elif title.startswith("while"):
                spent["mixers and other loops"] += time
            else:
                spent["clearing" if "broadcast" in title else "else"] += time
        whole = sum(spent.values())
        result[f"{name}: traced ms, and untraced"] = [whole / count / 1e6, 1e3 * untraced]
        result |= {f"{name}: share of {part}": time / whole for part, time in spent.items()}
    keep("profile", result, partial=names != list(SIZES))


@dataclasses.dataclass(frozen=True)
class Span:
    """An instruction of a compiled program, while it ran."""

    name: str
    start: float
    time: float

    @property
    def is_product(self) -> bool:
        return self.name.startswith(("ynn_fusion", "dot"))


def spans_in(trace: Path) -> list[Span]:
    """Instructions of a trace, those that contain others first."""
    lines = (line for plane in jax.profiler.ProfileData.from_file(str(trace)).planes for line in plane.lines if "XLA" in line.name)
    spans = [Span(event.name, event.start_ns, event.duration_ns) for line in lines for event in line.events if "::" not in event.name]
    return sorted(spans, key=lambda span: (span.start, -span.time))


def outermost(spans: list[Span]) -> Iterator[tuple[str, float, list[Span]]]:
    """Instructions that no other contains, with those that each contains: the innermost, so that none counts twice."""
    at = 0
    while at < len(spans):
        outer, first = spans[at], at + 1
        at = first
        while at < len(spans) and spans[at].start < outer.start + outer.time:
            at += 1
        yield outer.name, outer.time, [span for span in spans[first:at] if not span.name.startswith("while")]


def products(times: int = 400) -> None:
    """How fast single products are that the recurrent core is made of, with 64 rows: what is left for anything built of them."""
    result, peak = machine(), sgemm_peak()
    sizes = {
        "gates": (192, 64, 64, False),
        "encoder": (64, 51, 64, False),
        "weights of gates": (192, 64, 64, True),
        "weights of the encoder": (64, 64, 51, True),
    }
    for name, (rows, inner, columns, added) in sizes.items():

        def loop(a: Any, b: Any, shape: tuple[int, int] = (rows, columns), added: bool = added) -> Any:
            def one(i: Any, total: Any) -> Any:
                product = a[i % 8] @ b[i % 8]
                return total + product if added else jax.lax.optimization_barrier(product)

            return jax.lax.fori_loop(0, times, one, jnp.zeros(shape))

        compiled, a, b = jax.jit(loop), jnp.ones((8, rows, inner)), jnp.ones((8, inner, columns))
        spent = seconds(lambda run=compiled, a=a, b=b: run(a, b)) / times
        result[f"{name}: share of SGEMM peak"] = 2.0 * rows * inner * columns / spent / peak
    keep("products", result)


def growth() -> None:
    """How an update grows, with everything else held."""
    import matplotlib.pyplot as plt

    base = make_method("emc-vdn")
    sweeps = {
        "agents": [(n, 32, 50) for n in (2, 4, 8, 16, 27)],
        "moments of an episode": [(5, 32, length) for length in (25, 50, 100, 200)],
        "episodes of a batch": [(5, count, 50) for count in (16, 32, 64, 128)],
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    result = machine()
    for panel, (name, cases), column in zip(axes, sweeps.items(), (0, 2, 1), strict=True):
        times = []
        for agents, count, length in cases:
            spec = EnvSpec(agents, 11, 80, 120, 200)
            method = dataclasses.replace(base, batch_episodes=count, replay_episodes=max(count, 5_000))
            times.append(1e3 * time_update(method, spec, stored(method, spec, made_up(spec, count, length))))
            result[f"{name}: {cases[len(times) - 1][column]}, ms"] = times[-1]
        sizes = [case[column] for case in cases]
        panel.plot(sizes, times, "o-")
        panel.plot([0, sizes[-1]], [0, times[-1]], ":", color="grey", label="linear")
        panel.set(xlabel=name, ylabel="ms per update", xlim=0, ylim=0)
        panel.legend(frameon=False)
    figure.savefig(RESULTS / "growth.png", dpi=110)
    keep("growth", result)


def made_up(spec: EnvSpec, episodes: int, length: int) -> Episodes:
    """Random episodes, all of the same length."""
    keys = jax.random.split(jax.random.key(0), 4)
    steps, agents = spec.episode_limit, spec.n_agents
    return Episodes(
        obs=jax.random.normal(keys[0], (episodes, steps + 1, agents, spec.obs_size)),
        state=jax.random.normal(keys[1], (episodes, steps + 1, spec.state_size)),
        available=jnp.ones((episodes, steps + 1, agents, spec.n_actions), bool),
        action=jax.random.randint(keys[2], (episodes, steps, agents), 0, spec.n_actions),
        reward=jax.random.normal(keys[3], (episodes, steps)),
        terminated=jnp.zeros((episodes, steps), bool).at[:, length - 1].set(True),
        played=jnp.zeros((episodes, steps), bool).at[:, :length].set(True),
    )


def main(names: list[str]) -> None:
    result = machine()
    for name in names:
        method = make_method(*SIZES[name], name)
        spec, episodes = played(name, method.batch_episodes)
        batch = laid(method, spec, episodes)
        moments = int(jnp.sum(batch.length + 1))
        work, peak = operations(spec, moments, method), sgemm_peak()
        replay = stored(method, spec, episodes)
        spent = time_update(method, spec, replay)
        times = parts(method, spec, replay, batch)
        peak = max(peak, sgemm_peak())
        result |= {
            f"{name}: milliseconds": spent * 1e3,
            f"{name}: share of SGEMM peak, on played moments": work / spent / peak,
            f"{name}: share of computed moments that were played": moments / (int(batch.moments) * batch.time.shape[1]),
            f"{name}: longest, mean and limit of episodes": [int(jnp.max(batch.length)), float(jnp.mean(batch.length)), batch.limit],
            f"{name}: lanes and rows": [batch.time.shape[1], batch.time.shape[1] * spec.n_agents],
            **{f"{name}: ms of {part}": 1e3 * time for part, time in times.items()},
            f"{name}: ms of everything else": 1e3 * (spent - sum(times.values())),
        }
    keep("update", result, partial=names != list(SIZES))


if __name__ == "__main__":
    begin_with_huge_pages()  # as `emc train` does
    keep_freed_memory()
    match sys.argv[1:]:
        case ["--products"]:
            products()
        case ["--growth"]:
            growth()
        case ["--profile", *names]:
            profile(names or list(SIZES))
        case names:
            main(names or list(SIZES))
