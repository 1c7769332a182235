"""Episodes in few bytes: what is 0 or 1 takes a bit, an action a byte, any other number the type that its environment asks for."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped, UInt8

from emc.lanes import Moment
from emc.types import EnvSpec, Episodes


class Packed(eqx.Module):
    """Whole episodes, packed."""

    obs: Shaped[Array, "*B T1 N numbers"]  # features that are more than flags
    state: Shaped[Array, "*B T1 numbers2"]
    moment_flags: UInt8[Array, "*B T1 bytes"]  # those of observations and state, and the available actions
    step_flags: UInt8[Array, "*B 2 bytes2"]  # terminated, played
    action: Int[Array, "*B T N"]
    reward: Float[Array, "*B T"]
    choice: PyTree


def pack(spec: EnvSpec, episodes: Episodes) -> Packed:
    """Episodes as the replay keeps them."""
    (obs, obs_flags), (state, state_flags) = (_split(columns) for columns in _columns(spec))
    batch = episodes.reward.shape[:-1]
    moments = (*batch, spec.episode_limit + 1, -1)
    flags = [episodes.obs[..., obs_flags].reshape(moments), episodes.state[..., state_flags], episodes.available.reshape(moments)]
    return Packed(
        obs=_as_bits(episodes.obs[..., obs].astype(spec.obs_dtype)),
        state=_as_bits(episodes.state[..., state].astype(spec.state_dtype)),
        moment_flags=jnp.packbits(jnp.concatenate([flag.astype(bool) for flag in flags], axis=-1), axis=-1),
        step_flags=jnp.packbits(jnp.stack([episodes.terminated, episodes.played], axis=-2), axis=-1),
        action=episodes.action.astype("int8" if spec.n_actions <= 128 else "int32"),
        reward=episodes.reward,
        choice=episodes.choice,
    )


def lengths(spec: EnvSpec, step_flags: UInt8[Array, "*B 2 bytes2"]) -> Int[Array, "*B"]:
    """Steps of each episode, by its packed flags."""
    return jnp.sum(jnp.unpackbits(step_flags[..., 1, :], axis=-1, count=spec.episode_limit).astype(jnp.int32), axis=-1)


def unpack(spec: EnvSpec, packed: Packed, row: Int[Array, "*K"], time: Int[Array, "*K"], length: Int[Array, "*K"]) -> Moment:
    """Moments of packed episodes again, bit for bit as their environment's types hold them; `length` is each one's episode's."""
    (obs, obs_flags), (state, state_flags) = (_split(columns) for columns in _columns(spec))
    agents = spec.n_agents
    step = jnp.minimum(time, spec.episode_limit - 1)
    sizes = [agents * len(obs_flags), len(state_flags), agents * spec.n_actions]
    flags = jnp.unpackbits(packed.moment_flags[row, time], axis=-1, count=sum(sizes))
    seen, known, available = jnp.split(flags, np.cumsum(sizes)[:-1].tolist(), axis=-1)
    before = packed.action[row, jnp.maximum(time - 1, 0)].astype(jnp.int32)
    last = jnp.maximum(jnp.minimum(time, length - 1), 0)
    return Moment(
        obs=_joined(_from_bits(packed.obs[row, time], spec.obs_dtype), obs, seen.reshape(*time.shape, agents, len(obs_flags)), obs_flags),
        state=_joined(_from_bits(packed.state[row, time], spec.state_dtype), state, known, state_flags),
        available=available.reshape(*time.shape, agents, spec.n_actions).astype(bool),
        previous=jnp.where(time[..., None] > 0, before, -1),
        action=packed.action[row, step].astype(jnp.int32),
        reward=packed.reward[row, step],
        terminated=(packed.step_flags[row, 0, step // 8] >> (7 - step % 8).astype(jnp.uint8)) & 1 == 1,
        choice=jax.tree.map(lambda x: x[row, last], packed.choice),
    )


def blank_episodes(spec: EnvSpec, shape: tuple[int, ...], choice: PyTree = ()) -> Episodes:
    """All padding; `choice` is what a policy records at one step."""
    steps, moments, agents = spec.episode_limit, spec.episode_limit + 1, spec.n_agents
    return Episodes(
        obs=jnp.zeros((*shape, moments, agents, spec.obs_size), spec.obs_dtype),
        state=jnp.zeros((*shape, moments, spec.state_size), spec.state_dtype),
        available=jnp.zeros((*shape, moments, agents, spec.n_actions), bool),
        action=jnp.zeros((*shape, steps, agents), jnp.int32),
        reward=jnp.zeros((*shape, steps)),
        terminated=jnp.zeros((*shape, steps), bool),
        played=jnp.zeros((*shape, steps), bool),
        choice=jax.tree.map(lambda x: jnp.zeros((*shape, steps, *x.shape), x.dtype), choice),
    )


def _columns(spec: EnvSpec) -> tuple[np.ndarray, np.ndarray]:
    """Which features of observations, and of the state, are flags."""
    obs, state = np.full(spec.obs_size, spec.obs_dtype == "bool"), np.full(spec.state_size, spec.state_dtype == "bool")
    obs[list(spec.obs_flags)] = True
    state[list(spec.state_flags)] = True
    return obs, state


def _as_bits(x: Shaped[Array, "*B F"]) -> Shaped[Array, "*B F"]:
    """Short floats as whole numbers of the same bits: to write one row of floats XLA would widen a whole replay, on a CPU."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if _is_short(x.dtype) else x


def _from_bits(x: Shaped[Array, "*B F"], dtype: str) -> Shaped[Array, "*B F"]:
    return jax.lax.bitcast_convert_type(x, dtype) if _is_short(jnp.dtype(dtype)) else x


def _is_short(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize == 2


def _split(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.flatnonzero(~columns), np.flatnonzero(columns)


def _joined(numbers: Array, at: np.ndarray, flags: Array, flags_at: np.ndarray) -> Array:
    """Numbers and flags at their places."""
    if not len(flags_at):
        return numbers
    both = jnp.concatenate([numbers, flags.astype(numbers.dtype)], axis=-1)
    return both[..., np.argsort(np.concatenate([at, flags_at]))]
