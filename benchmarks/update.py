"""One EMC-VDN gradient step: its share of the matrix-product peak, and its speed against a plain scan under automatic derivatives.

    python benchmarks/update.py

Two sizes: the gridworld's, and 8 agents x 101 moments x 150 observation entries x 14 actions. Work is counted as the products of the
agents' layers that the method cannot avoid: six forward passes, and for each of the three networks that learn the gradients of all weights
and of all inputs but those of the first layer, which are data. A scan under automatic derivatives takes as long for short episodes as for
full ones; the hand-written derivative stops with the longest.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import keep, machine, seconds, sgemm_peak

from emc import nets
from emc.methods import make_method
from emc.training.learner import init_learner, update
from emc.types import EnvSpec, Episodes

STEPS_PER_CALL = 5
SIZES = {
    "gridworld": EnvSpec(2, 5, 46, 92, 30),
    "8 agents": EnvSpec(8, 14, 150, 300, 100),
}


def full_batch(spec: EnvSpec, episodes: int, length: int) -> Episodes:
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


def operations(spec: EnvSpec, episodes: int, hidden: int) -> float:
    """Floating-point operations of one update."""
    inputs = spec.obs_size + spec.n_actions + spec.n_agents
    first, rest = inputs * hidden, 6 * hidden * hidden + hidden * spec.n_actions
    rows = (spec.episode_limit + 1) * episodes * spec.n_agents
    return 2.0 * rows * (6 * (first + rest) + 3 * (first + 2 * rest))


def plain_unroll(net: nets.AgentNet, x: jax.Array, moments: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same network as a scan of all its layers, left to automatic differentiation."""

    def step(h: jax.Array, now: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        h, out = net.step(now, h)
        return h, (h, out)

    return jax.lax.scan(step, jnp.zeros((x.shape[1], net.decode.weight.shape[1])), x)[1]


def hoisted_unroll(net: nets.AgentNet, x: jax.Array, moments: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same with the layers before and after the recurrent one taken out of the loop."""

    def step(h: jax.Array, encoded: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = net.memory.step(encoded, h)
        return h, h

    start = jnp.zeros((x.shape[1], net.decode.weight.shape[1]))
    hidden = jax.lax.scan(step, start, jax.nn.relu(net.encode(x)))[1]
    return hidden, net.decode(hidden)


def time_update(spec: EnvSpec, length: int) -> float:
    """Seconds of one gradient step on episodes of a given length, inside a compiled loop."""
    method = make_method("emc-vdn")
    state, batch = init_learner(method, spec, jax.random.key(1)), full_batch(spec, method.batch_episodes, length)

    @jax.jit
    def several(state, batch):
        return jax.lax.fori_loop(0, STEPS_PER_CALL, lambda i, s: update(method, s, batch, i)[0], state)

    return seconds(lambda: several(state, batch), repeats=5) / STEPS_PER_CALL


def main() -> None:
    result = machine()
    ours = nets.AgentNet.unroll
    for name, spec in SIZES.items():
        work, limit = operations(spec, 32, 64), spec.episode_limit
        peak = sgemm_peak()
        fast, short = time_update(spec, limit), time_update(spec, limit // 2)
        peak = max(peak, sgemm_peak())
        nets.AgentNet.unroll = plain_unroll
        plain = time_update(spec, limit)
        nets.AgentNet.unroll = hoisted_unroll
        hoisted = time_update(spec, limit)
        nets.AgentNet.unroll = ours
        result |= {
            f"{name}: GFLOP in one update": work / 1e9,
            f"{name}: milliseconds": fast * 1e3,
            f"{name}: GFLOP/s": work / fast / 1e9,
            f"{name}: share of SGEMM peak": work / fast / peak,
            f"{name}: times faster than a plain scan": plain / fast,
            f"{name}: times faster than a scan with outer layers hoisted": hoisted / fast,
            f"{name}: times faster than that on episodes of half the length": hoisted / short,
        }
    keep("update", result)


if __name__ == "__main__":
    main()
