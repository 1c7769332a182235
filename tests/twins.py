"""Plain NumPy twins of the mathematics, a policy that is a table of numbers, a tiny scripted environment, and random episodes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from emc.envs.base import HasSpec
from emc.lanes import BLOCK, Lanes, Layout, lay_episodes
from emc.losses.fitting import ValueFunction, ValueState
from emc.methods import Method
from emc.parts import Actors, Fit, Metrics, Mixer, Nets, Policy, Seen, Step, ValueLoss
from emc.policies import RecurrentQ
from emc.training.loop import TrainState, init
from emc.training.packing import Packed, lengths, unpack
from emc.types import EnvSpec, Episodes, Timestep, Unroll

SPEC = EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=9, episode_limit=4, unit_size=3)
LOUD = 50.0  # stands where a lane has no episode, so that whoever reads it there is found out
# LLVM's optimiser off: a test runs a program once or twice, so the time that it takes to compile is what counts.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True})
# For what runs about as long as it takes to compile.
SOMEWHAT = {"xla_backend_optimization_level": 1}
# As users have it, whatever the flags are: for what runs longer than it takes to compile.
WHOLE = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
    "xla_disable_hlo_passes": "",
}


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """The largest difference is at most `tolerance` times the largest expected number."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.all(np.isfinite(actual))
    assert np.max(np.abs(actual - expected), initial=0.0) <= tolerance * np.max(np.abs(expected), initial=0.0)


def assert_trees_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Every array is close, each measured by its own largest number."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert_close(a, b, tolerance)


def bits(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """All that two trees must share to be the same."""
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(tree)]
    return [(str(x.dtype), x.shape, np.asarray(x).tobytes()) for x in leaves]


def as_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def at(index: Any, tree: Any) -> Any:
    """What is at a place of every array, by way of NumPy, which compiles no program for each shape."""
    return jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree))


def stacked(*trees: Any) -> Any:
    """The arrays of several trees as rows, by way of NumPy."""
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *trees))


def filled(init: Callable[[jax.Array], Any], seed: int, size: float = 0.5) -> Any:
    """What `init` would make, filled with normal numbers of that size instead: nothing is compiled, no gate stays in its linear part."""
    return fill(jax.eval_shape(init, jax.random.key(0)), seed, size)


def fill(shapes: Any, seed: int, size: float = 0.5) -> Any:
    """Normal numbers in these shapes."""
    rng = np.random.default_rng(seed)
    return jax.device_put(jax.tree.map(lambda leaf: (size * rng.normal(size=leaf.shape)).astype(leaf.dtype), shapes))


def begun(method: Method, env: HasSpec) -> TrainState:
    """What `Program.init` makes, draw by draw: most methods share most of these, and a program of all of them takes long to compile."""
    return copied(init(method, env.spec, 0))  # a target that is no copy could not be donated


def copied(tree: Any) -> Any:
    """The same arrays elsewhere, by way of NumPy, which compiles no program for each shape; keys, which it does not know, by JAX."""
    return jax.tree.map(
        lambda leaf: jnp.copy(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else jax.device_put(np.array(leaf)), tree
    )


def random_episodes(
    seed: int, lengths: Sequence[int], cut: Sequence[bool] | None = None, spec: EnvSpec = SPEC, steps: int | None = None
) -> Episodes:
    """Episodes of given lengths, zero after their ends; those that are `cut` end without being terminated."""
    rng = np.random.default_rng(seed)
    batch, steps = len(lengths), steps or spec.episode_limit
    length = np.array(lengths)[:, None]
    played = np.arange(steps) < length
    seen = np.arange(steps + 1) <= length
    available = rng.random((batch, steps + 1, spec.n_agents, spec.n_actions)) < 0.7
    spare = rng.integers(spec.n_actions, size=available.shape[:-1])
    available |= np.arange(spec.n_actions) == spare[..., None]  # something is always available
    action = np.argmax(np.where(available, rng.random(available.shape), -1.0), axis=-1)[:, :-1]
    last = np.arange(steps) == length - 1
    arrays = {
        "obs": np.float32(rng.normal(size=(batch, steps + 1, spec.n_agents, spec.obs_size)) * seen[..., None, None]),
        "state": np.float32(rng.normal(size=(batch, steps + 1, spec.state_size)) * seen[..., None]),
        "available": available & seen[..., None, None],
        "action": np.int32(action * played[..., None]),
        "reward": np.float32(rng.normal(size=(batch, steps)) * played),
        "terminated": last & ~np.array([False] * batch if cut is None else cut)[:, None],
        "played": played,
    }
    return Episodes(**jax.device_put(arrays))


def stretched(episodes: Episodes, more: int) -> Episodes:
    """The same episodes with more padding."""
    return jax.device_put(jax.tree.map(lambda x: np.pad(x, [(0, 0), (0, more)] + [(0, 0)] * (x.ndim - 2)), episodes))


def spoilt(batch: Episodes, more: int) -> tuple[Episodes, jax.Array]:
    """The same episodes with more padding and garbage in it, in the reward too."""
    longer = stretched(batch, more)
    known = as_numpy(longer)
    after = np.arange(known.state.shape[1]) > np.sum(known.played, axis=1)[:, None]
    garbage = {
        "obs": np.where(after[..., None, None], np.float32(3.0), known.obs),
        "state": np.where(after[..., None], np.float32(-2.0), known.state),
        "available": known.available | after[..., None, None],
        "action": np.where(known.played[..., None], known.action, np.int32(2)),
    }
    reward = np.where(known.played, known.reward, np.float32(1e4))
    return dataclasses.replace(longer, **jax.device_put(garbage)), jax.device_put(reward)


def only_agent(episodes: Episodes, agent: int) -> Episodes:
    """The same episodes as one of the agents knows them."""
    tracks = {name: vars(episodes)[name][:, :, agent : agent + 1] for name in ("obs", "available", "action")}
    return dataclasses.replace(episodes, **tracks)


@functools.partial(jax.jit, static_argnums=(1, 2))
def laid(episodes: Episodes, lanes: int = 2, policy: Policy = RecurrentQ()) -> Lanes:
    """The episodes in lanes, by default so few that several episodes share one."""
    actions = episodes.available.shape[-1]
    return lay_episodes(episodes, Layout(min(lanes, episodes.reward.shape[0]), BLOCK), functools.partial(policy.inputs, n_actions=actions))


def along_steps(lanes: Lanes, values: Any) -> jax.Array:
    """What padded rows hold of steps, along the lanes; what is padding in them is no less loud at the moments without a step."""
    values = jnp.asarray(values)
    return values[jnp.minimum(lanes.episode, values.shape[0] - 1), jnp.minimum(lanes.time, values.shape[1] - 1)]


def unpacked(spec: EnvSpec, packed: Packed) -> Episodes:
    """Stored episodes in padded rows again, moment by moment."""
    length = lengths(spec, packed.step_flags)
    row, time = jnp.meshgrid(jnp.arange(length.shape[0]), jnp.arange(spec.episode_limit + 1), indexing="ij")
    moment = unpack(spec, packed, row, time, length[row])
    played = jnp.arange(spec.episode_limit) < length[:, None]

    def of_steps(x: jax.Array) -> jax.Array:
        x = x[:, :-1]
        return jnp.where(played.reshape(*played.shape, *[1] * (x.ndim - 2)), x, jnp.zeros((), x.dtype))

    return Episodes(
        obs=moment.obs,
        state=moment.state,
        available=moment.available,
        action=moment.action[:, :-1],
        reward=moment.reward[:, :-1],
        terminated=moment.terminated[:, :-1],
        played=played,
        choice=jax.tree.map(of_steps, moment.choice),
    )


def by_moment(lanes: Lanes, values: jax.Array) -> jax.Array:
    """What belongs to moments, in padded rows of episodes, last moments included."""
    blank = jnp.zeros((lanes.length.shape[0], lanes.limit + 1, *values.shape[2:]), values.dtype)
    return blank.at[lanes.episode, lanes.time].set(values, mode="drop")


class Run(eqx.Module):
    """A policy run over whole episodes, in padded rows, features last."""

    q: jax.Array
    hidden: jax.Array
    context: jax.Array


def run_by_moment(lanes: Lanes, run: Unroll) -> Run:
    """What was run along lanes, in padded rows."""
    return Run(*(by_moment(lanes, x) for x in (run.q, jnp.moveaxis(run.hidden, 1, -1), run.context)))


def fit_by_episode(lanes: Lanes, fit: Fit) -> Fit:
    """The same in padded rows of episodes."""
    return Fit(*(lanes.by_episode(x) for x in (fit.loss, fit.q, fit.error, fit.regulariser)), fit.report)


def look_up(table: jax.Array, lanes: Lanes) -> jax.Array:
    """A table of episodes and moments along the lanes."""
    return table.at[lanes.episode, lanes.time].get(mode="fill", fill_value=LOUD)


@dataclasses.dataclass(frozen=True)
class Table(Policy):
    """A policy whose weights are its values, so that losses can be computed by hand."""

    shape: tuple[int, ...] = ()  # episodes, moments, agents, actions

    def init_net(self, key: jax.Array, spec: EnvSpec) -> jax.Array:
        return jax.random.normal(key, self.shape)

    def begin(self, net: jax.Array, state: Any, first: jax.Array, key: jax.Array, spec: EnvSpec) -> tuple[()]:
        return ()

    def step(self, *_: Any) -> Step:
        raise NotImplementedError

    def unroll(self, net: jax.Array, state: Any, batch: Lanes) -> Unroll:
        moments, lanes = batch.time.shape
        return Unroll(look_up(net, batch), jnp.zeros((moments, 0, lanes, net.shape[2])), jnp.zeros((moments, lanes, 0)))


class Minds(eqx.Module):
    """Values and hidden states as weights."""

    q: jax.Array
    hidden: jax.Array


@dataclasses.dataclass(frozen=True)
class Given(Policy):
    """A table with hidden states, each independent of the other, so that it is seen which of the two a loss reaches."""

    shape: tuple[int, ...] = ()  # episodes, moments, agents, actions

    def init_net(self, key: jax.Array, spec: EnvSpec) -> Minds:
        q_key, hidden_key = jax.random.split(key)
        return Minds(jax.random.normal(q_key, self.shape), jax.random.normal(hidden_key, (*self.shape[:-1], self.hidden)))

    def begin(self, net: Minds, state: Any, first: jax.Array, key: jax.Array, spec: EnvSpec) -> tuple[()]:
        return ()

    def step(self, *_: Any) -> Step:
        raise NotImplementedError

    def unroll(self, net: Minds, state: Any, batch: Lanes) -> Unroll:
        hidden = jnp.moveaxis(look_up(net.hidden, batch), -1, 1)
        return Unroll(look_up(net.q, batch), hidden, jnp.zeros((*batch.time.shape, 0)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 7))
def fit_with(
    loss: ValueLoss, policy: Policy, mixer: Mixer, online: Nets, target: Nets, batch: Episodes, reward: jax.Array, gamma: float
) -> Fit:
    """A loss on a batch, with agents that act by the online weights; its answer in padded rows."""
    actors, lanes = Actors(policy, online.policy, ()), laid(batch)
    seen = (Seen(nets, actors.unroll_with(nets.policy, lanes)) for nets in (online, target))
    return fit_by_episode(lanes, loss(actors, mixer, *seen, lanes, along_steps(lanes, reward), gamma))


def improve(
    function: ValueFunction, state: ValueState, batch: Episodes, reward: jax.Array, actors: Actors
) -> tuple[ValueState, Fit, Metrics]:
    """One step of a value function, and its fit in padded rows."""
    lanes = laid(batch)
    after, fit, metrics = function.update(state, lanes, along_steps(lanes, reward), actors)
    return after, fit_by_episode(lanes, fit), metrics


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def linear(weights: Mapping[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """PyTorch's linear layer, in double precision."""
    return x @ weights[f"{name}.weight"].astype(np.float64).T + weights[f"{name}.bias"]


def two_layers(weights: Mapping[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return linear(weights, f"{name}.2", np.maximum(linear(weights, f"{name}.0", x), 0.0))


def mlp(net: Any, x: Any) -> np.ndarray:
    """Linear layers with ReLU between them, in double precision."""
    x = np.asarray(x, np.float64)
    for i, layer in enumerate(net.layers):
        x = np.asarray(layer.weight, np.float64) @ (np.maximum(x, 0.0) if i else x) + np.asarray(layer.bias, np.float64)
    return x


def unrestricted(net: Any, chosen: np.ndarray, state: np.ndarray) -> float:
    """WQMIX's central mixer at one moment."""
    return float(mlp(net.joint, np.concatenate([state, chosen]))[0] + mlp(net.value, state)[0])


def joint_value(net: Any, state: np.ndarray, hidden: np.ndarray, action: Sequence[int]) -> float:
    """QTRAN's joint value at one moment: every agent's hidden state and action encoded, summed, and read together with the state."""
    n_actions = net.encode.layers[0].weight.shape[1] - hidden.shape[-1]
    agents = sum(mlp(net.encode, np.concatenate([h, np.eye(n_actions)[a]])) for h, a in zip(hidden, action, strict=True))
    return float(mlp(net.value, np.concatenate([state, agents]))[0])


def greedy_actions(q: np.ndarray, available: np.ndarray) -> list[int]:
    """Each agent's best available action at one moment."""
    return [int(max(np.flatnonzero(possible), key=lambda a: values[a])) for values, possible in zip(q, available, strict=True)]


def gru(weights: Mapping[str, np.ndarray], x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """One step as PyTorch documents it."""
    w_ir, w_iz, w_in = np.split(weights["rnn.weight_ih_l0"].astype(np.float64), 3)
    w_hr, w_hz, w_hn = np.split(weights["rnn.weight_hh_l0"].astype(np.float64), 3)
    b_ir, b_iz, b_in = np.split(weights["rnn.bias_ih_l0"].astype(np.float64), 3)
    b_hr, b_hz, b_hn = np.split(weights["rnn.bias_hh_l0"].astype(np.float64), 3)
    r = sigmoid(x @ w_ir.T + b_ir + h @ w_hr.T + b_hr)
    z = sigmoid(x @ w_iz.T + b_iz + h @ w_hz.T + b_hz)
    n = np.tanh(x @ w_in.T + b_in + r * (h @ w_hn.T + b_hn))
    return (1 - z) * n + z * h


def gru_weights(net: Any) -> dict[str, np.ndarray]:
    """A recurrent unit's weights under PyTorch's names, for `gru`."""
    names = {"weight_ih": net.input_weight, "weight_hh": net.hidden_weight, "bias_ih": net.input_bias, "bias_hh": net.hidden_bias}
    return {f"rnn.{name}_l0": np.concatenate(list(np.asarray(gates))) for name, gates in names.items()}


def agent_values(weights: Mapping[str, np.ndarray], episodes: Episodes) -> np.ndarray:
    """Every agent's values along whole episodes, one agent of one episode after the other."""
    obs, action = np.asarray(episodes.obs, np.float64), np.asarray(episodes.action)
    batch, moments, n_agents, _ = obs.shape
    n_actions, hidden = weights["fc2.weight"].shape
    q = np.zeros((batch, moments, n_agents, n_actions))
    for b in range(batch):
        for i in range(n_agents):
            h = np.zeros(hidden)
            for t in range(moments):
                previous = np.eye(n_actions)[action[b, t - 1, i]] if t else np.zeros(n_actions)
                x = np.concatenate([obs[b, t, i], previous, np.eye(n_agents)[i]])
                h = gru(weights, np.maximum(linear(weights, "fc1", x), 0.0), h)
                q[b, t, i] = linear(weights, "fc2", h)
    return q


def sum_errors(q: Any, target_q: Any, episodes: Episodes, reward: Any, gamma: float, double_q: bool = True) -> np.ndarray:
    """Temporal-difference errors of the sum of the agents' values, zero on padding."""
    q, target_q, e = np.asarray(q, np.float64), np.asarray(target_q, np.float64), as_numpy(episodes)
    error = np.zeros(e.reward.shape)
    for b, t in zip(*np.nonzero(e.played), strict=True):
        total, after = 0.0, 0.0
        for i in range(q.shape[2]):
            total += q[b, t, i, e.action[b, t, i]]
            possible = np.flatnonzero(e.available[b, t + 1, i])
            decider = q if double_q else target_q
            after += target_q[b, t + 1, i, max(possible, key=lambda a: decider[b, t + 1, i, a])] if len(possible) else 0.0
        error[b, t] = total - (np.asarray(reward)[b, t] + gamma * (not e.terminated[b, t]) * after)
    return error


class World(eqx.Module):
    time: jax.Array
    length: jax.Array
    cut: jax.Array


class Scripted(eqx.Module):
    """Two agents whose episodes differ in length and ending by the key of the reset; all else follows from time and actions.

    Some lengths lie beyond the limit: such an episode is cut there without a word from the environment. What an ended episode would show
    if it were stepped on is loud, so that whoever records it is found out.
    """

    limit: int = eqx.field(default=5, static=True)
    pay: Any = 1.0  # traced

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, episode_limit=self.limit, map_shape=(2, self.limit + 1))

    def reset(self, key: jax.Array) -> tuple[World, Timestep]:
        length_key, cut_key = jax.random.split(key)
        length, cut = jax.random.randint(length_key, (), 1, self.limit + 2), jax.random.bernoulli(cut_key)
        world = World(jnp.int32(0), length, cut)
        return world, self._show(world, jnp.zeros(2, jnp.int32))

    def step(self, world: World, action: jax.Array, key: jax.Array) -> tuple[World, Timestep]:
        world = World(world.time + 1, world.length, world.cut)
        return world, self._show(world, action)

    def _show(self, world: World, action: jax.Array) -> Timestep:
        time, length, cut = world.time, world.length, world.cut
        common = jnp.stack([time + 1, length, cut.astype(jnp.int32)]).astype(jnp.float32)
        loud = jnp.where(time > length, 1000.0, 0.0)
        own = 10.0 * jnp.arange(2) + action + loud
        return Timestep(
            obs=jnp.concatenate([jnp.broadcast_to(common, (2, 3)), own[:, None]], axis=1),
            state=jnp.concatenate([common, action + loud]),
            available=(time + jnp.arange(2)[:, None]) % 3 != jnp.arange(3),
            reward=self.pay * time.astype(jnp.float32) + action[0] - 0.5 * action[1] + loud,
            terminated=(time == length) & ~cut,
            truncated=(time == length) & cut,
            won=((time == length) & ~cut & (length % 2 == 1)) | (time > length),
        )

    def occupancy(self, state: jax.Array) -> jax.Array:
        """Both agents walk along their own row, one column a step."""
        return jnp.broadcast_to((jnp.arange(self.limit + 1) == state[0] - 1).astype(jnp.float32), (2, self.limit + 1))

    def draw(self, axes: Any, world: World) -> None:
        raise NotImplementedError

    def draw_outlines(self, axes: Any) -> None:
        raise NotImplementedError
