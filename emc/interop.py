"""Weights and batches from PyMARL-style PyTorch code, and back: for checking results against other implementations and for migrating.

    learner = emc.interop.learner_from_torch(method, spec, {"agent": {...}, "mixer": {...}, "curiosity": {...}, "predictor": {...}})
    batch = emc.interop.episodes_from_pymarl(state=..., obs=..., avail_actions=..., actions=..., reward=..., terminated=..., filled=...)
    learner = emc.observe(method, learner, batch)                      # write the episodes into the memory, if the method has one
    learner, lesson = emc.update(method, learner, batch, env_steps)    # one gradient step; lesson.bonus, .priority, .metrics
    learner = emc.interop.copy_targets(learner)                        # a hard copy now; `update` makes one every `target_interval` steps
    weights = emc.interop.to_torch(learner.values.online.policy)       # .mixer; learner.curiosity.values.online.policy, .soft, .predictor

Where the released code has one number for both, the inference and the curiosity module each have their own here: set `target_interval`,
`learning_rate` and `gradient_clip` on the method and on its curiosity. Its other names:

    mixing_embed_dim -> mixer.embed             adv_hypernet_layers -> mixer.layers      num_kernel -> mixer.kernels
    hypernet_embed -> mixer.hypernet            weighted_head -> mixer.weighted          n_head -> mixer.heads
    attend_reg_coef -> mixer.regularisation     curiosity_scale -> curiosity.weight.start
    curiosity_decay_rate, _cycle, _stop -> curiosity.weight.rate, .every, .floor         soft_update_tau -> curiosity.soft_update
    emdqn_loss_weight -> memory.weight          target_update_interval -> target_interval, in gradient steps: a copy after every so many;
                                                the released counter also counts the episodes before the first gradient step

Names and layouts are PyTorch's `state_dict`: linear weights `[out, in]`, GRU weights `[3H, in]` in the gate order reset, update, new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from emc.curiosity import ValueCuriosity
from emc.errors import UserError
from emc.losses.fitting import ValueState
from emc.methods import Method
from emc.parts import Nets
from emc.training.learner import LearnerState, init_learner, value_function
from emc.types import EnvSpec, Episodes

Weights = Mapping[str, Any]


def episodes_from_pymarl(*, state: Any, obs: Any, avail_actions: Any, actions: Any, reward: Any, terminated: Any, filled: Any) -> Episodes:
    """A batch as PyMARL stores it: every array has one entry per moment, and `filled` marks the moment after the last step too."""
    ended = np.asarray(terminated)[:, :-1, 0].astype(bool)
    after_end = np.concatenate([np.zeros_like(ended[:, :1]), np.cumsum(ended, axis=1)[:, :-1] > 0], axis=1)
    played = np.asarray(filled)[:, :-1, 0].astype(bool) & ~after_end
    return Episodes(
        obs=jnp.asarray(obs),
        state=jnp.asarray(state),
        available=jnp.asarray(avail_actions).astype(bool),
        action=jnp.asarray(np.asarray(actions)[:, :-1, :, 0] * played[..., None], jnp.int32),
        reward=jnp.asarray(np.asarray(reward)[:, :-1, 0], jnp.float32) * played,
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
    """A learner before its first update, with given weights: `agent`, and where the method has them `mixer`, `curiosity`, `predictor`.

    Optimisers start empty and targets as copies, unless given: `target_agent`, `target_mixer`, `target_curiosity`, `soft_target`. A missing
    `curiosity` starts as a copy of `agent`, as in the released code.
    """
    known = {"agent", "mixer", "curiosity", "predictor", "target_agent", "target_mixer", "target_curiosity", "soft_target"}
    if strange := sorted(set(weights) - known):
        raise UserError(f"unknown networks {', '.join(strange)}; known: {', '.join(sorted(known))}")
    for name in ("agent", *(["predictor"] if isinstance(method.curiosity, ValueCuriosity) else [])):
        if name not in weights:
            raise UserError(f"the weights of {name} are missing; given: {', '.join(sorted(weights)) or 'none'}")
    fresh = init_learner(method, spec, jax.random.key(seed))
    nets = fresh.values.online
    online = Nets(from_torch(nets.policy, weights["agent"]), from_torch(nets.mixer, weights.get("mixer", {})), nets.loss)
    values = value_function(method).start(online)
    target = Nets(_given(online.policy, weights.get("target_agent")), _given(online.mixer, weights.get("target_mixer")), nets.loss)
    state = dataclasses.replace(fresh, values=dataclasses.replace(values, target=target))
    if not isinstance(method.curiosity, ValueCuriosity):
        return state
    phi = state.curiosity.values.online
    phi = Nets(from_torch(phi.policy, weights.get("curiosity", weights["agent"])), phi.mixer, phi.loss)
    predictor = from_torch(state.curiosity.predictor, weights["predictor"])
    curiosity = method.curiosity.start(method.policy, phi, predictor)
    phi_target = dataclasses.replace(phi, policy=_given(phi.policy, weights.get("target_curiosity")))
    curiosity = dataclasses.replace(
        curiosity,
        values=dataclasses.replace(curiosity.values, target=phi_target),
        soft=_given(phi.policy, weights.get("soft_target")),
    )
    return dataclasses.replace(state, curiosity=curiosity)


def copy_targets(learner: LearnerState) -> LearnerState:
    """A hard copy of all online networks to their targets, now."""

    def copied(values: ValueState) -> ValueState:
        return dataclasses.replace(values, target=values.online)

    return jax.tree.map(lambda x: copied(x) if isinstance(x, ValueState) else x, learner, is_leaf=lambda x: isinstance(x, ValueState))


def _given(net: PyTree, weights: Weights | None) -> PyTree:
    """The net with other weights, or a copy of it where none are given."""
    return jax.tree.map(jnp.copy, net) if weights is None else from_torch(net, weights)


def _torch_name(net: PyTree, path: tuple[Any, ...]) -> str:
    ours = jax.tree_util.keystr(path, simple=True, separator=".")
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
