"""Environments of JaxMARL, compiled with everything else: `smax/3m` for its StarCraft-like maps, `jaxmarl/NAME` for any other.

The team's reward is the mean (or the sum) of the agents' rewards. Observations of different sizes are padded to the longest, action
spaces to the largest. The global state is JaxMARL's where there is one, else all observations together. Its environments start anew by
themselves and play one step more than their limit; here an episode ends where it ends, and the limit is counted by this adapter.

SMAX is another game than SMAC (other damage, ranges and clock), and its maps share no more than their teams with `emc.envs.battle`: its
results are neither SMAC's nor those of the battles here.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from emc.envs.hosted import parse_arguments
from emc.errors import UserError
from emc.types import EnvSpec, Timestep
from emc.user_input import check_size, lookup

MOVES, STOP = (0, 1, 2, 3), 4  # SMAX's actions; everything above attacks


class JaxMARL(eqx.Module):
    """One environment of JaxMARL."""

    source: str = eqx.field(static=True)  # smax/MAP, or jaxmarl/NAME
    arguments: str = eqx.field(default="", static=True)  # for its constructor: name=value name=value ...
    reward: str = eqx.field(default="mean", static=True)  # mean or sum: how the agents' rewards become the team's
    episode_limit: int = eqx.field(default=0, static=True)  # steps; 0 leaves it to the environment

    def __check_init__(self) -> None:
        parse_arguments(self.arguments)
        lookup("way to share the reward", self.reward, dict.fromkeys(("mean", "sum")))
        check_size("episode_limit", self.episode_limit, "give the steps of an episode, or 0 for the environment's own.", low=0)
        _spec(self)  # an environment that does not exist is refused here

    @property
    def spec(self) -> EnvSpec:
        """Sizes, and SMAX's actions that only move or stop."""
        return _spec(self)

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Start an episode."""
        env = made(self.source, self.arguments)
        obs, state = env.reset(key)
        nothing = jnp.zeros((), bool)
        return (state, jnp.int32(0)), Timestep(*_shown(env, obs, state), jnp.zeros(()), nothing, nothing, nothing)

    def step(self, world: PyTree, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Play one joint action."""
        env, (state, time) = made(self.source, self.arguments), world
        # Whole 32-bit numbers: SMAX moves units the wrong way when given bytes.
        chosen = {agent: action[i].astype(jnp.int32) for i, agent in enumerate(env.agents)}
        # `step_env`, since `step` would show the next episode's first moment in place of this one's last.
        obs, state, rewards, dones, _ = env.step_env(key, state, chosen)
        time = time + 1
        late, over = time >= self.spec.episode_limit, dones["__all__"]
        # As in SMAC, running out of time is a defeat; elsewhere the limit only cuts what would go on.
        ended = over | late if _is_smax(self.source) else over & ~late
        gains = jnp.stack([jnp.asarray(rewards[agent], jnp.float32) for agent in env.agents])
        now = Timestep(
            *_shown(env, obs, state),
            reward=jnp.sum(gains) if self.reward == "sum" else jnp.mean(gains),
            terminated=ended,
            truncated=late & ~ended,
            won=_won(env, state) if _is_smax(self.source) else jnp.zeros((), bool),
        )
        return (state, time), now


@functools.lru_cache(maxsize=32)
def made(source: str, arguments: str) -> Any:
    """JaxMARL's own object; one for all equal ones, since each is compiled anew."""
    family, _, name = source.partition("/")
    try:
        jaxmarl: Any = importlib.import_module("jaxmarl")
        smax: Any = importlib.import_module("jaxmarl.environments.smax.smax_env")
    except ImportError as error:
        raise UserError(f"{source} needs JaxMARL ({error}). Install it with: pip install 'emc-marl[smax]'") from error
    fields = parse_arguments(arguments)
    try:
        if family == "smax":
            scenario = lookup("map of SMAX", name, smax.MAP_NAME_TO_SCENARIO)
            # Borders that kill would punish walking; SMAC has none.
            return jaxmarl.make("HeuristicEnemySMAX", scenario=scenario, **{"walls_cause_death": False, **fields})
        lookup("environment of JaxMARL", name, dict.fromkeys(jaxmarl.registered_envs))
        return jaxmarl.make(name, **fields)
    except (TypeError, ImportError) as error:
        raise UserError(f"{source} cannot be made with {arguments or 'no arguments'}: {error}") from error


@functools.lru_cache(maxsize=32)
def _spec(env: JaxMARL) -> EnvSpec:
    inner = made(env.source, env.arguments)
    if not all(hasattr(inner.action_space(agent), "n") for agent in inner.agents):
        raise UserError(f"{env.source}: an agent's actions are not a finite choice. Only discrete action spaces can be learnt here")
    limit = env.episode_limit or int(getattr(inner, "max_steps", 0))
    if not limit:
        raise UserError(f"{env.source} does not say how long an episode may last: give --env.episode-limit N")
    obs, state, available = jax.eval_shape(lambda key: _shown(inner, *inner.reset(key)), jax.random.key(0))
    return EnvSpec(
        n_agents=len(inner.agents),
        n_actions=available.shape[1],
        obs_size=obs.shape[1],
        state_size=state.shape[0],
        episode_limit=limit,
        winnable=_is_smax(env.source),
        idle_actions=(STOP,) if _is_smax(env.source) else (),
        move_actions=MOVES if _is_smax(env.source) else (),
    )


def _is_smax(source: str) -> bool:
    return source.startswith("smax/")


def _shown(env: Any, obs: dict[str, Any], state: PyTree) -> tuple[Float[Array, "N O"], Float[Array, " S"], Bool[Array, "N A"]]:
    """Observations, global state and available actions."""
    rows = [jnp.ravel(obs[agent]).astype(jnp.float32) for agent in env.agents]
    longest = max(row.size for row in rows)
    table = jnp.stack([jnp.pad(row, (0, longest - row.size)) for row in rows])
    return table, _global_state(env, obs, state, table), _available(env, state)


def _global_state(env: Any, obs: dict[str, Any], state: PyTree, table: Float[Array, "N O"]) -> Float[Array, " S"]:
    if "world_state" in obs:
        return jnp.ravel(obs["world_state"]).astype(jnp.float32)
    if hasattr(env, "get_world_state"):
        return jnp.ravel(env.get_world_state(state)).astype(jnp.float32)
    return jnp.ravel(table)


def _available(env: Any, state: PyTree) -> Bool[Array, "N A"]:
    """What each agent may do; everything, where JaxMARL does not say."""
    sizes = [int(env.action_space(agent).n) for agent in env.agents]
    ask = getattr(env, "get_legal_moves", env.get_avail_actions)
    try:
        masks = ask(state)
    except NotImplementedError:
        masks = {}
    rows = [jnp.asarray(masks.get(agent, jnp.ones(size))).astype(bool) for agent, size in zip(env.agents, sizes, strict=True)]
    return jnp.stack([jnp.pad(row, (0, max(sizes) - row.size)) for row in rows])


def _won(env: Any, state: PyTree) -> Bool[Array, ""]:
    """SMAX does not say who won: all enemies are dead and somebody of the team is not."""
    alive = state.state.unit_alive
    return jnp.any(alive[: env.num_allies]) & ~jnp.any(alive[env.num_allies :])
