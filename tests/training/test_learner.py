"""One gradient step against the released PyTorch code's, and by hand: memory loss, priorities, targets, order."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import ValueCuriosity
from emc.interop import episodes_from_pymarl, learner_from_torch, networks_of, to_torch
from emc.lanes import Lanes
from emc.losses import Qtran, Weighted
from emc.memory import EpisodicMemory, NoMemory
from emc.methods import Method
from emc.mixers import QMIX, Independent
from emc.parts import Found, Memory, Metrics, Recollection, Seen
from emc.policies import RecurrentQ
from emc.training.learner import LearnerState, Lesson, init_learner, observe, update
from emc.types import EnvSpec, Episodes
from tests.twins import SPEC, Table, along_steps, assert_close, bits, only_agent, quick, random_episodes, sum_errors

GOLDEN = Path(__file__).parents[1] / "golden"
RELEASED = EnvSpec(n_agents=3, n_actions=5, obs_size=11, state_size=19, episode_limit=6)
WEIGHTED_STATISTICS = [
    ("loss", "loss", 1),
    ("gradient_norm", "grad_norm", 1),
    ("td_error", "td_error_abs", 1),
    ("q", "q_taken_mean", 3),
    ("target", "target_mean", 3),
    ("mixer_loss", "qmix_loss", 1),
    ("central_loss", "central_loss", 1),
]
METHODS = {
    "emc_vdn": Method(curiosity=ValueCuriosity(), gamma=0.9),
    "qtran": Method(loss=Qtran(), gamma=0.99),
    "ow_qmix": Method(mixer=QMIX(), loss=Weighted("optimistic", alpha=0.1), gamma=0.99),
    "cw_qmix": Method(mixer=QMIX(), loss=Weighted("central", alpha=0.1), gamma=0.99),
}  # one update of each, as the released code made it


@functools.partial(quick, static_argnums=0)
def learn(method: Method, state: LearnerState, batch: Episodes, env_steps: Any = 0) -> tuple[LearnerState, Lesson]:
    return update(method, state, batch, jnp.asarray(env_steps, jnp.int32))


@functools.cache
def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}_one_update.npz") as file:
        return dict(file)


def part_of(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@functools.cache
def one_update(name: str) -> tuple[LearnerState, Lesson]:
    arrays, method = golden(name), METHODS[name]
    nets = {key.split("/")[1] for key in arrays if key.startswith("init/")}
    weights = {net: part_of(arrays, f"init/{net}/") for net in nets}
    return learn(method, learner_from_torch(method, RELEASED, weights), episodes_from_pymarl(**part_of(arrays, "batch/")))


def test_the_bonus_is_the_released_codes() -> None:
    assert_close(one_update("emc_vdn")[1].bonus, golden("emc_vdn")["out/intrinsic_reward"][0], 1e-5)


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "factor"),
    [
        ("emc_vdn", "loss", "loss", 1),
        ("emc_vdn", "gradient_norm", "grad_norm", 1),
        ("emc_vdn", "td_error", "td_error_abs", 1),
        ("emc_vdn", "q", "q_taken_mean", 3),  # these statistics of the released code are divided by the number of agents
        ("emc_vdn", "target", "target_mean", 3),
        ("emc_vdn", "curiosity_loss", "vdn_loss", 1),
        ("emc_vdn", "curiosity_gradient_norm", "vdn_grad_norm", 1),
        ("emc_vdn", "curiosity_td_error", "vdn_td_error_abs", 1),
        ("emc_vdn", "curiosity_q", "vdn_q_taken_mean", 3),
        ("emc_vdn", "curiosity_target", "vdn_target_mean", 3),
        ("emc_vdn", "curiosity_prediction_loss", "vdn_prediction_loss", 1),
        ("emc_vdn", "curiosity_weight", "curiosity_scale", 1),
        ("emc_vdn", "reward_intrinsic", "vdn_intrinsic_rewards", 1),
        ("emc_vdn", "reward_extrinsic", "extrinsic_rewards", 1),
        ("qtran", "loss", "loss", 1),
        ("qtran", "gradient_norm", "grad_norm", 1),
        ("qtran", "td_error", "td_error_abs", 1),
        ("qtran", "td_loss", "td_loss", 1),
        ("qtran", "optimum_loss", "opt_loss", 1),
        ("qtran", "bound_loss", "nopt_loss", 1),
        *((name, ours, theirs, factor) for name in ("ow_qmix", "cw_qmix") for ours, theirs, factor in WEIGHTED_STATISTICS),
    ],
)
def test_metrics_are_the_released_codes(name: str, ours: str, theirs: str, factor: int) -> None:
    assert float(one_update(name)[1].metrics[ours]) == pytest.approx(factor * float(golden(name)[f"out/stat/{theirs}"][0]), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "net"),
    [
        *(("emc_vdn", net) for net in ("agent", "curiosity", "predictor", "soft_target")),
        *(("qtran", net) for net in ("agent", "mixer")),
        *((name, net) for name in ("ow_qmix", "cw_qmix") for net in ("agent", "mixer", "central_agent", "central_mixer")),
    ],
)
def test_weights_after_one_update_are_the_released_codes(name: str, net: str) -> None:
    state, _ = one_update(name)
    ours, final = to_torch(networks_of(state)[net].get(state)), part_of(golden(name), f"final/{net}/")
    initial = part_of(golden(name), f"init/{'curiosity' if net == 'soft_target' else net}/")
    assert set(ours) == {f"{key}_l0" if key.startswith("rnn.") and not key.endswith("_l0") else key for key in final}
    for key, expected in final.items():
        mine = ours[key] if key in ours else ours[f"{key}_l0"]  # GRU cells and sequence GRUs differ in their names only
        # Of the largest weight of each array. Sums have another order than there, and RMSprop makes much of a gradient near zero.
        assert_close(mine, expected, 2e-5)
        # Weights hardly move in one update, so their change is checked for itself; the soft target's is near the rounding of a weight.
        assert_close(mine - initial[key], expected - initial[key], 1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_targets_still_hold_the_initial_weights_after_one_update(name: str) -> None:
    state, _ = one_update(name)
    found = {net: place for net, place in networks_of(state).items() if net.startswith("target_")}
    assert len(found) > 1
    for net, place in found.items():
        initial = part_of(golden(name), f"init/{net.removeprefix('target_')}/")
        for key, array in to_torch(place.get(state)).items() if initial else ():
            np.testing.assert_array_equal(array, initial[key] if key in initial else initial[key.removesuffix("_l0")])


GAMMA, LENGTHS, CUT = 0.9, [4, 2, 3], [True, False, False]
STEPS = sum(LENGTHS)
BATCH = random_episodes(0, LENGTHS, CUT)
TABLE = Table((3, 5, 2, 3))


@dataclasses.dataclass(frozen=True)
class Script(Memory):
    """A memory that says what its state says."""

    weight: float = 0.25

    @property
    def loss_weight(self) -> float:
        return self.weight

    def init(self, key: jax.Array, spec: EnvSpec) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((3, 4)), jnp.zeros((3, 4), bool)

    def observe(self, state: Any, fresh: Episodes, gamma: float, won: Any = None) -> Any:
        return state

    def recall(self, state: tuple[jax.Array, jax.Array], batch: Lanes, gamma: float) -> tuple[Any, Recollection]:
        value, known = (along_steps(batch, x) for x in state)
        return state, Recollection(batch.reward + gamma * value, known)

    def metrics(self, state: Any) -> Metrics:
        return {}


def chosen_sums(q: Any) -> np.ndarray:
    return np.sum(np.take_along_axis(np.asarray(q, np.float64)[:, :-1], np.asarray(BATCH.action)[..., None], axis=-1)[..., 0], axis=-1)


def fresh_learner(method: Method, seed: int = 0) -> LearnerState:
    return init_learner(method, SPEC, jax.random.key(seed))


def test_the_memory_loss_counts_misses_in_its_mean_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    value, known = rng.normal(size=(3, 4)).astype(np.float32), rng.random((3, 4)) < 0.5
    known[1, 3] = True  # on padding: must not matter
    played = np.asarray(BATCH.played)
    assert 0 < np.sum(known & played) < STEPS
    with_memory = Method(policy=TABLE, memory=Script(), learning_rate=0.01)
    without = dataclasses.replace(with_memory, memory=NoMemory())
    state = dataclasses.replace(fresh_learner(with_memory), memory=(jnp.asarray(value), jnp.asarray(known)))
    after, lesson = learn(with_memory, state, BATCH)
    plain_after, plain = learn(without, dataclasses.replace(state, memory=()), BATCH)
    q = chosen_sums(state.values.online.policy)
    gap = (np.asarray(BATCH.reward) + GAMMA * value - q) * known * played
    expected = 0.25 * np.sum(gap**2) / STEPS
    assert float(lesson.metrics["loss"] - plain.metrics["loss"]) == pytest.approx(expected, rel=1e-4)
    assert float(lesson.metrics["memory_hit_rate"]) == pytest.approx(np.sum(known & played) / STEPS)
    assert float(plain.metrics["memory_hit_rate"]) == 0.0
    assert float(lesson.metrics["memory_loss"]) == pytest.approx(float(lesson.metrics["loss"]) - float(plain.metrics["loss"]), rel=1e-4)
    assert not {"memory_loss", "memory_target", "memory_q"} & set(plain.metrics)
    # The gradient of the whole: 2 (error - lambda gap) / steps at each chosen value. Squared, summed: its norm.
    error = sum_errors(state.values.online.policy, state.values.target.policy, BATCH, BATCH.reward, GAMMA)
    total = 2 * (error - 0.25 * gap) / STEPS
    assert float(lesson.metrics["gradient_norm"]) == pytest.approx(np.sqrt(2 * np.sum(total**2)), rel=1e-5)  # of both agents
    assert np.any(np.asarray(after.values.online.policy) != np.asarray(plain_after.values.online.policy))
    assert_close(lesson.priority, plain.priority, 1e-6)  # the temporal-difference error alone decides what is drawn


def test_an_episodic_memory_pulls_towards_the_returns_that_it_saw() -> None:
    method = Method(policy=TABLE, memory=EpisodicMemory(weight=0.5, capacity=64))
    state = quick(lambda state: observe(method, state, BATCH))(fresh_learner(method))
    _, lesson = learn(method, state, BATCH)
    reward, q = np.asarray(BATCH.reward, np.float64), chosen_sums(state.values.online.policy)
    pulled: list[tuple[float, float]] = []  # what is recalled, and what Q_tot says
    for b, (length, cut) in enumerate(zip(LENGTHS, CUT, strict=True)):
        later = [sum(GAMMA ** (k - t) * reward[b, k] for k in range(t, length)) for t in range(length + 1)]
        seen = range(length - cut)  # where an episode was cut nobody saw what would follow
        pulled += [(reward[b, t] + GAMMA * later[t + 1], q[b, t]) for t in seen]
    error = sum_errors(state.values.online.policy, state.values.target.policy, BATCH, BATCH.reward, GAMMA)
    loss = sum((target - value) ** 2 for target, value in pulled)
    assert len(pulled) == STEPS - 1
    assert float(lesson.metrics["memory_hit_rate"]) == pytest.approx(len(pulled) / STEPS)
    assert float(lesson.metrics["loss"]) == pytest.approx((np.sum(error**2) + 0.5 * loss) / STEPS, rel=1e-4)
    for name, column in (("memory_target", 0), ("memory_q", 1)):
        assert float(lesson.metrics[name]) == pytest.approx(np.mean([pair[column] for pair in pulled]), rel=1e-4)


def test_priorities_are_mean_squared_errors_with_the_bonus_and_the_bonus_is_from_before_the_step() -> None:
    method = Method(policy=TABLE, curiosity=ValueCuriosity(predictor_learning_rate=0.1, soft_update=0.5))
    state = fresh_learner(method)
    after, lesson = learn(method, state, BATCH)
    played = np.asarray(BATCH.played)
    predicted, slow = (np.asarray(x, np.float64)[:, 1:] for x in (state.curiosity.predictor, state.curiosity.soft))
    bonus = 0.2 * np.mean(np.sqrt(np.sum((predicted - 10.0 * slow + 1e-6) ** 2, axis=-1)), axis=-1) * played
    assert_close(lesson.bonus, bonus, 1e-5)
    assert np.max(np.abs(np.asarray(after.curiosity.predictor) - np.asarray(state.curiosity.predictor))) > 0.05
    error = sum_errors(state.values.online.policy, state.values.target.policy, BATCH, np.asarray(BATCH.reward) + bonus, GAMMA)
    assert_close(lesson.priority, np.sum(error**2, axis=1) / LENGTHS, 1e-5)
    assert float(lesson.metrics["loss"]) == pytest.approx(np.sum(error**2) / STEPS, rel=1e-5)
    assert float(lesson.metrics["reward_intrinsic"]) == pytest.approx(np.sum(bonus) / STEPS, rel=1e-5)
    assert float(lesson.metrics["reward_extrinsic"]) == pytest.approx(float(jnp.sum(BATCH.reward)) / STEPS, rel=1e-4)


@dataclasses.dataclass(frozen=True)
class Pulled(Table):
    """Values that are pulled down by a loss of the policy's own."""

    def auxiliary_loss(
        self, online: Seen, target: Seen, state: Any, batch: Lanes, reward: jax.Array, gamma: float
    ) -> tuple[jax.Array, Metrics]:
        return jnp.sum(online.unroll.q * batch.inside[..., None, None]), {"pull": jnp.ones(())}


def test_a_policys_own_loss_moves_the_acting_agents_and_not_the_values_behind_curiosity() -> None:
    pulled, plain = (Method(policy=policy, curiosity=ValueCuriosity()) for policy in (Pulled(TABLE.shape), TABLE))
    state = fresh_learner(plain)
    (after, lesson), (expected, other) = (learn(method, state, BATCH) for method in (pulled, plain))
    assert float(lesson.metrics["loss"] - other.metrics["loss"]) == pytest.approx(
        float(sum(jnp.sum(state.values.online.policy[b, : length + 1]) for b, length in enumerate(LENGTHS))), rel=1e-4
    )
    assert bits(after.values.online) != bits(expected.values.online)
    assert bits(after.curiosity) == bits(expected.curiosity)
    assert set(lesson.metrics) - set(other.metrics) == {"pull"}


def test_the_priority_of_independent_learners_is_the_mean_over_agents_too() -> None:
    method = Method(policy=TABLE, mixer=Independent())
    state = fresh_learner(method)
    _, lesson = learn(method, state, BATCH)
    errors = []
    for i in range(2):
        q = np.asarray(state.values.online.policy)[:, :, i : i + 1]
        errors.append(sum_errors(q, q, only_agent(BATCH, i), BATCH.reward, GAMMA))
    assert_close(lesson.priority, np.sum(np.square(errors), axis=(0, 2)) / (2 * np.array(LENGTHS)), 1e-5)


def test_targets_are_copied_exactly_every_interval() -> None:
    method = Method(policy=TABLE, curiosity=ValueCuriosity(target_interval=3), target_interval=2)
    state = fresh_learner(method)
    for i in range(1, 7):
        before = state
        state, _ = learn(method, state, BATCH)
        for values, old, interval in ((state.values, before.values, 2), (state.curiosity.values, before.curiosity.values, 3)):
            assert values.updates == i
            assert bits(values.target) == bits(values.online if i % interval == 0 else old.target)
            assert bits(values.online) != bits(old.target)


@dataclasses.dataclass(frozen=True)
class Turning(Table):
    """A policy that turns at a given moment."""

    def init(self, key: jax.Array, spec: EnvSpec) -> jax.Array:
        return jnp.zeros((), bool)

    def learn(self, state: jax.Array, batch: Lanes, found: Found, gamma: float, env_steps: jax.Array) -> tuple[jax.Array, Metrics]:
        return env_steps > 10, {}

    def meaning_changed(self, before: jax.Array, after: jax.Array) -> jax.Array:
        return after & ~before


def test_the_target_is_copied_at_once_when_values_come_to_mean_something_else() -> None:
    method = Method(policy=Turning(TABLE.shape), target_interval=100)
    state = fresh_learner(method)
    for env_steps, copied in ((10, False), (11, True), (12, False)):
        before = state
        state, _ = learn(method, state, BATCH, env_steps)
        assert bits(state.values.target) == bits(state.values.online if copied else before.values.target)
        assert bits(state.values.online) != bits(before.values.target)


def test_repeated_updates_fit_the_batch_and_stay_finite() -> None:
    method = Method(policy=RecurrentQ(hidden=8), curiosity=ValueCuriosity(), memory=EpisodicMemory(capacity=64), learning_rate=2e-3)
    state = quick(lambda key: observe(method, init_learner(method, SPEC, key), BATCH))(jax.random.key(0))

    def step(state: LearnerState, i: jax.Array) -> tuple[LearnerState, Lesson]:
        return update(method, state, BATCH, i)

    state, lessons = quick(lambda state: jax.lax.scan(step, state, jnp.arange(100)))(state)
    assert state.values.updates == 100
    for name, track in lessons.metrics.items():
        assert np.all(np.isfinite(np.asarray(track))), name
    loss = np.asarray(lessons.metrics["loss"])
    assert np.mean(loss[-5:]) < 0.5 * loss[0]
    assert np.mean(lessons.metrics["reward_intrinsic"][-5:]) < lessons.metrics["reward_intrinsic"][0]
