"""Weights and batches from PyMARL-style PyTorch code, and back: for checking results against other implementations and for migrating.

    learner = emc.interop.learner_from_torch(method, spec, {"agent": {...}, "mixer": {...}, "curiosity": {...}, "predictor": {...}})
    batch = emc.interop.episodes_from_pymarl(state=..., obs=..., avail_actions=..., actions=..., reward=..., terminated=..., filled=...)
    update = jax.jit(emc.update, static_argnums=0)                     # compiled once for all updates of these sizes
    learner = emc.observe(method, learner, batch)                      # write the episodes into the memory, if the method has one
    learner, lesson = update(method, learner, batch, env_steps)        # one gradient step; lesson.bonus, .priority, .metrics
    learner = emc.interop.copy_targets(learner)                        # a hard copy now; `update` makes one every `target_interval` steps
    place = emc.interop.networks_of(learner)["agent"]                  # "mixer", "central_agent", "curiosity", "soft_target", ...
    weights = emc.interop.to_torch(place.get(learner))

Where the released code has one number for both, the inference and the curiosity module each have their own here: set `target_interval`,
`optimiser`, `learning_rate` and `gradient_clip` on the method and on its curiosity. Its other names:

    mixing_embed_dim -> mixer.embed             adv_hypernet_layers -> mixer.layers      num_kernel -> mixer.kernels
    hypernet_embed -> mixer.hypernet            weighted_head -> mixer.weighted          n_head -> mixer.heads
    attend_reg_coef -> mixer.regularisation     curiosity_scale -> curiosity.weight.start
    curiosity_decay_rate, _cycle, _stop -> curiosity.weight.rate, .every, .floor         soft_update_tau -> curiosity.soft_update
    w -> loss.alpha                             central_mixing_embed_dim -> loss.central_mixer.width
    opt_loss -> loss.optimum_weight             nopt_min_loss -> loss.bound_weight       QTRAN's mixing_embed_dim -> loss.width
    emdqn_loss_weight -> memory.weight          target_update_interval -> target_interval, in gradient steps: a copy after every so many;
                                                the released counter also counts the episodes before the first gradient step

    emdqn_buffer_size -> memory.capacity        emdqn_latent_dim -> memory.key_size

The memory of the released code also holds the state at which a time limit cut an episode, with a return of zero; here it does so with
`memory.write_cut_states=True`. It looks up in a tree that is built at each copy of the targets: until then it finds nothing of what was
written since. Here everything is found at once, so call `observe` where the released code would build its tree.

Names and layouts are PyTorch's `state_dict`: linear weights `[out, in]`, GRU weights `[3H, in]` in the gate order reset, update, new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from emc.curiosity.value import ValueCuriosityState
from emc.errors import UserError
from emc.losses.fitting import ValueState
from emc.losses.joint import QtranNet
from emc.losses.weighted import CentralNet
from emc.methods import Method
from emc.parts import Nets
from emc.training.learner import LearnerState, init_learner
from emc.types import EnvSpec, Episodes
from emc.user_input import lookup

Weights = Mapping[str, Any]


def episodes_from_pymarl(
    *, state: Any, obs: Any, avail_actions: Any, actions: Any, reward: Any, terminated: Any, filled: Any, **others: Any
) -> Episodes:
    """A batch as PyMARL stores it: every array has one entry per moment, and `filled` marks the moment after the last step too.

    Whatever else PyMARL stores (`actions_onehot`, `probs`) follows from these and is not read.
    """
    arrays = {"state": state, "obs": obs, "avail_actions": avail_actions, "actions": actions}
    arrays |= {"reward": reward, "terminated": terminated, "filled": filled}
    found = {name: np.asarray(value) for name, value in arrays.items()}
    if found["avail_actions"].ndim != 4:
        raise UserError(f"avail_actions has shape {found['avail_actions'].shape}, expected (episodes, moments, agents, actions)")
    episodes, moments, agents, choices = found["avail_actions"].shape
    last = {"state": (-1,), "obs": (agents, -1), "actions": (agents, 1), "reward": (1,), "terminated": (1,), "filled": (1,)}
    for name, axes in last.items():
        shape = found[name].shape
        if len(shape) != 2 + len(axes) or any(
            wanted not in (-1, size) for wanted, size in zip((episodes, moments, *axes), shape, strict=True)
        ):
            expected = ", ".join("any" if size == -1 else str(size) for size in (episodes, moments, *axes))
            raise UserError(f"{name} has shape {shape}, expected ({expected}): as PyMARL stores it")
    ended = found["terminated"][:, :-1, 0].astype(bool)
    after_end = np.concatenate([np.zeros_like(ended[:, :1]), np.cumsum(ended, axis=1)[:, :-1] > 0], axis=1)
    played = found["filled"][:, :-1, 0].astype(bool) & ~after_end
    there = np.concatenate([played[:, :1], played], axis=1)  # moments before and after a step that was played
    action = found["actions"][:, :-1, :, 0] * played[..., None]
    if action.min(initial=0) < 0 or action.max(initial=0) >= choices:
        raise UserError(f"actions go from {action.min()} to {action.max()}, but there are {choices}")
    return Episodes(
        obs=jnp.asarray(np.where(there[:, :, None, None], found["obs"], 0)),
        state=jnp.asarray(np.where(there[:, :, None], found["state"], 0)),
        available=jnp.asarray(found["avail_actions"].astype(bool)),
        action=jnp.asarray(action, jnp.int32),
        reward=jnp.asarray(np.where(played, found["reward"][:, :-1, 0], 0), jnp.float32),
        terminated=jnp.asarray(ended & played),
        played=jnp.asarray(played),
    )


def from_torch(net: PyTree, weights: Weights) -> PyTree:
    """`net` with every weight replaced by the one of PyTorch's name for it."""
    used: set[str] = set()

    def replace(path: tuple[Any, ...], leaf: Any) -> Any:
        pattern = _torch_name(net, path)
        names = [pattern.format(i) for i in range(leaf.shape[0])] if "{}" in pattern else [pattern]
        if leaf.size == 0:
            return leaf
        found = [_find(name, weights) for name in names]
        used.update(name for name, _ in found)
        if odd := [name for name, array in found if array.shape != found[0][1].shape]:
            raise UserError(f"weight {odd[0]} has another shape than {found[0][0]}: is it of the same sizes and options?")
        value = np.stack([array for _, array in found]) if "{}" in pattern else found[0][1]
        if value.shape not in (leaf.shape, (int(np.prod(leaf.shape[:2])), *leaf.shape[2:])):  # the gates of a GRU are one block there
            raise UserError(f"weight {pattern} has shape {value.shape}, expected {leaf.shape}: is it of the same sizes and options?")
        return jnp.asarray(value, leaf.dtype).reshape(leaf.shape)

    filled = jax.tree_util.tree_map_with_path(replace, net)
    if left := sorted(set(weights) - used):
        raise UserError(f"weights without a place in this network: {', '.join(left[:4])}; is it of the same kind and options?")
    return filled


def to_torch(net: PyTree) -> dict[str, np.ndarray]:
    """All weights under PyTorch's names and layouts."""
    out: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(net):
        pattern, value = _torch_name(net, path), np.asarray(leaf)
        if "{}" in pattern:
            out |= {pattern.format(i): array for i, array in enumerate(value)}
        else:  # the three gates of a GRU are one block there
            gates = pattern.startswith("rnn.")
            out[pattern] = value.reshape(-1, *value.shape[2:]) if gates else value
    return {name: array for name, array in out.items() if array.size}


def learner_from_torch(method: Method, spec: EnvSpec, weights: Mapping[str, Weights], seed: int = 0) -> LearnerState:
    """A learner before its first update, with given weights, network by network (see `networks_of`).

    Networks beside these that the released code has no names for (EMC-Cen's critic, RND's) start from `seed`; MAVEN's and RODE's agents are
    refused.
    Optimisers start empty and targets as copies, unless given (`target_agent`, `target_mixer`, ..., `soft_target`). A missing `curiosity`
    starts as a copy of `agent`, as in the released code. A `predictor` is ignored where nothing is predicted. The released EMC-TD does not
    divide its bonus by the number of agents: `curiosity.per_agent=False`.
    """
    state = init_learner(method, spec, jax.random.key(seed))
    places = networks_of(state)
    for name in weights:
        lookup("network", name, places)
    given = dict(weights)
    if "curiosity" in places and "agent" in weights:
        given.setdefault("curiosity", weights["agent"])
    if "predictor" in places and not jax.tree.leaves(places["predictor"].get(state)):
        given.pop("predictor", None)  # the released code trains one for EMC-TD too and does not use it
    for name, place in places.items():
        copies = place.copy_of is not None
        if name not in given and not copies and jax.tree.leaves(place.get(state)):
            raise UserError(f"the weights of {name} are missing; given: {', '.join(sorted(weights)) or 'none'}")
        if name in given:
            state = place.set(state, from_torch(place.get(state), given[name]))
        elif copies:
            state = place.set(state, jax.tree.map(jnp.copy, places[str(place.copy_of)].get(state)))
    return state


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a learner keeps one network."""

    get: Callable[[LearnerState], PyTree]
    copy_of: str | None = None  # the network that it starts as a copy of

    def set(self, state: LearnerState, net: PyTree) -> LearnerState:
        """The learner with another network there."""
        return eqx.tree_at(self.get, state, net, is_leaf=lambda x: isinstance(x, tuple) and not x)


def networks_of(state: LearnerState) -> dict[str, Place]:
    """The networks of a learner under the released code's names.

    `agent` and `mixer` (QTRAN's joint network is its mixer there), `central_agent` and `central_mixer` of weighted QMIX, their targets;
    `curiosity`, `target_curiosity`, `soft_target` and `predictor` of EMC.
    """
    own = state.values.online.loss
    found: dict[str, Place] = {}

    def pair(name: str, get: Callable[[Nets], PyTree], of: Callable[[LearnerState], ValueState] = lambda s: s.values) -> None:
        found[name] = Place(lambda s: get(of(s).online))
        found[f"target_{name}"] = Place(lambda s: get(of(s).target), copy_of=name)

    pair("agent", lambda nets: nets.policy)
    pair("mixer", (lambda nets: nets.loss) if isinstance(own, QtranNet) else (lambda nets: nets.mixer))
    if isinstance(own, CentralNet):
        pair("central_agent", lambda nets: nets.loss.agent)
        pair("central_mixer", lambda nets: nets.loss.mixer)
    if isinstance(state.curiosity, ValueCuriosityState):
        own_values = isinstance(state.curiosity.values, ValueState)
        if own_values:
            pair("curiosity", lambda nets: nets.policy, lambda s: s.curiosity.values)
        found["soft_target"] = Place(lambda s: s.curiosity.soft, copy_of="curiosity" if own_values else "agent")
        found["predictor"] = Place(lambda s: s.curiosity.predictor)
    return found


def copy_targets(learner: LearnerState) -> LearnerState:
    """A hard copy of all online networks to their targets, now."""

    def copied(values: ValueState) -> ValueState:
        return dataclasses.replace(values, target=values.online)

    return jax.tree.map(lambda x: copied(x) if isinstance(x, ValueState) else x, learner, is_leaf=lambda x: isinstance(x, ValueState))


def _torch_name(net: PyTree, path: tuple[Any, ...]) -> str:
    ours = jax.tree_util.keystr(path, simple=True, separator=".")
    if not hasattr(net, "torch_names"):
        raise UserError(f"{type(net).__name__} has no counterpart with known names: its weights cannot be loaded or given out")
    names: dict[str, str] = net.torch_names
    if ours in names:
        return names[ours]
    layer, _, kind = ours.rpartition(".")
    return f"{names[layer]}.{kind}"


def _find(name: str, weights: Weights) -> tuple[str, np.ndarray]:
    """A weight by name; GRU cells lack the suffix that sequence GRUs have."""
    for spelling in (name, name.removesuffix("_l0")):
        if spelling in weights:
            return spelling, np.asarray(weights[spelling])
    raise UserError(f"weight {name} is missing; given: {', '.join(sorted(weights)[:6])} ...")
