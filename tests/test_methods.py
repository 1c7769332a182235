"""Every method of the paper: what it is made of, that it learns, and what a method refuses to be."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import pytest

from emc.configuration import configure
from emc.curiosity import RND, Counts, NoCuriosity, ValueCuriosity
from emc.errors import UserError
from emc.losses import TD, CentralTD, Qtran, Weighted
from emc.memory import EpisodicMemory, NoMemory
from emc.methods import EXEMPLARS, METHODS, PAPER, PARTS, PRESETS, STARCRAFT, TUNED, Method, make_method
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent, Unrestricted
from emc.optimisers import Adam
from emc.policies import Apart, Maven, RecurrentQ, Rode
from emc.sampling import Prioritised, Uniform
from emc.schedules import DecayingWeight, Epsilon

TOY_QPLEX = QPLEX(kernels=4, layers=2, hypernet=64, weighted=True)
TOY_CURIOSITY = ValueCuriosity(
    weight=DecayingWeight(start=0.2, rate=0.9, every=5_000, floor=0.01),
    mixer=VDN(),
    loss=TD(double_q=True),
    soft_update=0.005,
    target_scale=10.0,
    squared=False,
    look_ahead=True,
    per_agent=True,
    learning_rate=5e-4,
    predictor_learning_rate=5e-4,
    gradient_clip=10.0,
    target_interval=200,
)
SHARED = Method(
    policy=RecurrentQ(hidden=64),
    mixer=VDN(),
    loss=TD(double_q=True),
    curiosity=NoCuriosity(),
    memory=NoMemory(),
    replay=Uniform(),
    epsilon=Epsilon(start=1.0, finish=0.05, steps=50_000),
    gamma=0.9,
    learning_rate=5e-4,
    gradient_clip=10.0,
    batch_episodes=32,
    replay_episodes=5_000,
    updates_per_episode=1,
    target_interval=200,
)
VARIANTS: dict[str, dict[str, Any]] = {
    "td": {"novelty": "td_error"},
    "ind": {"novelty": "change"},
    "cen": {"novelty": "td_error", "loss": CentralTD(width=64)},
    "dec": {"mixer": Independent()},
}
PRIORITISED = Prioritised(exponent=0.5, new_priority=100.0)
APART: dict[str, Any] = {
    "policy": Apart(hidden=64, weights=(0.0, 0.25, 1.0, 4.0, 16.0), blindly=1.0, window=90, learning_rate=5e-4, target_interval=200),
    "curiosity": dataclasses.replace(TOY_CURIOSITY, own_values=False, weight=DecayingWeight(start=1.0, rate=1.0)),
    "replay": PRIORITISED,
}  # ours
RELEASED = {
    "iql": {"mixer": Independent()},
    "vdn": {"mixer": VDN()},
    "qmix": {"mixer": QMIX(embed=32, hypernet=64)},
    "qplex": {"mixer": TOY_QPLEX},
    "emc-vdn": {"curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "emc-qmix": {"mixer": QMIX(embed=32, hypernet=64), "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "emc-qplex": {"mixer": TOY_QPLEX, "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "qplex-counts": {"mixer": TOY_QPLEX, "curiosity": Counts(DecayingWeight(0.2, 0.9, 5_000, 0.01)), "replay": PRIORITISED},
    "qplex-emu": {"mixer": TOY_QPLEX, "memory": EpisodicMemory(weight=0.0, incentive=True), "replay": PRIORITISED},
    "emc-apart-vdn": APART,
    "emc-apart-qmix": APART | {"mixer": QMIX(embed=32, hypernet=64)},
    "emc-apart-qplex": APART | {"mixer": TOY_QPLEX},
    "emc-wo-c": {
        "mixer": TOY_QPLEX,
        "memory": EpisodicMemory(weight=0.1, capacity=1_000_000, key_size=4),
        "replay": PRIORITISED,
    },
    "emc-wo-m": {"mixer": TOY_QPLEX, "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "qmix-tuned": {
        "mixer": QMIX(embed=32, hypernet=64),
        "loss": TD(double_q=True, td_lambda=0.6),
        "optimiser": Adam(decay=0.9, second_decay=0.999, eps=1e-8),
        "epsilon": Epsilon(start=1.0, finish=0.05, steps=100_000),
        "gamma": 0.99,
        "learning_rate": 1e-3,
        "gradient_clip": 20.0,
        "batch_episodes": 128,
        "episodes_per_update": 8,
        "target_interval": 25,
    },
    "qtran": {"loss": Qtran(width=64, optimum_weight=1.0, bound_weight=0.1), "gamma": 0.99},
    "cw-qmix": {"mixer": QMIX(embed=32, hypernet=64), "loss": Weighted("central", 0.1, Unrestricted(256)), "gamma": 0.99},
    "ow-qmix": {"mixer": QMIX(embed=32, hypernet=64), "loss": Weighted("optimistic", 0.1, Unrestricted(256)), "gamma": 0.99},
    "maven": {"policy": Maven(latents=16, entropy_weight=0.001, discriminator=32), "mixer": QMIX(embed=32, layers=1), "gamma": 0.99},
    "rode": {
        "policy": Rode(clusters=5, interval=5, switch_at=50_000),
        "mixer": QMIX(embed=32, hypernet=64),
        "epsilon": Epsilon(start=1.0, finish=0.05, steps=70_000, restart_at=50_000, restart_steps=70_000),
        "gamma": 0.99,
    },
    "qplex-global": {"mixer": TOY_QPLEX, "curiosity": RND("state", DecayingWeight(0.2, 0.9, 5_000, 0.01), 64), "replay": PRIORITISED},
    "qplex-local": {"mixer": TOY_QPLEX, "curiosity": RND("history", DecayingWeight(0.2, 0.9, 5_000, 0.01), 64), "replay": PRIORITISED},
    **{
        f"emc-{name}": {"mixer": TOY_QPLEX, "curiosity": dataclasses.replace(TOY_CURIOSITY, **changes), "replay": PRIORITISED}
        for name, changes in VARIANTS.items()
    },
}
PAPERS_CURIOSITY = dataclasses.replace(
    TOY_CURIOSITY,
    weight=DecayingWeight(start=0.0001, rate=0.9, every=200_000, floor=0.0),
    loss=TD(double_q=False),
    soft_update=0.05,
    target_scale=1.0,
    squared=True,
    look_ahead=False,
)


def test_every_method_is_checked() -> None:
    assert set(RELEASED) == set(METHODS)


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_constants_are_those_of_the_released_code(name: str) -> None:
    assert METHODS[name].method == dataclasses.replace(SHARED, **RELEASED[name])
    assert make_method(name) == METHODS[name].method


@pytest.mark.parametrize("name", [name for name in RELEASED if name.startswith("emc") and "apart" not in name])
def test_the_papers_constants_are_those_of_its_text(name: str) -> None:
    method = PAPER[name].method
    assert method == dataclasses.replace(
        SHARED,
        mixer=METHODS[name].method.mixer,
        loss=TD(double_q=False),
        curiosity=NoCuriosity() if name == "emc-wo-c" else dataclasses.replace(PAPERS_CURIOSITY, **VARIANTS.get(name[4:], {})),
        memory=NoMemory() if name == "emc-wo-m" else EpisodicMemory(weight=0.1),
        gamma=0.9,
    )
    assert make_method(name, "paper") == method


def test_the_papers_preset_leaves_the_baselines_alone() -> None:
    assert set(PAPER) == set(METHODS)
    own = [name for name in METHODS if METHODS[name].paper == METHODS["emc-vdn"].paper]
    assert "emc-apart-vdn" not in own
    assert [name for name in METHODS if PAPER[name] == METHODS[name]] == [name for name in METHODS if name not in own]
    for name in ("qplex-global", "qplex-local"):
        expected = dataclasses.replace(METHODS[name].method.curiosity, weight=PAPERS_CURIOSITY.weight)
        changes = {"loss": TD(double_q=False), "curiosity": expected, "replay": Uniform()}
        assert PAPER[name].method == dataclasses.replace(METHODS[name].method, **changes)


def test_a_new_episode_weighs_ten_in_the_released_replay() -> None:
    replay = METHODS["emc-vdn"].method.replay
    assert math.exp(float(replay.log_weight(jnp.array([replay.new_priority]))[0])) == pytest.approx(10.0, rel=1e-5)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"^unknown method 'emc-qplx'; known: [^\n]*Did you mean emc-qplex\?$"):
        make_method("emc-qplx")
    with pytest.raises(UserError, match=r"^unknown preset 'papers'; known: paper, released, starcraft, tuned. Did you mean paper\?$"):
        make_method("vdn", "papers")


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_that_can_be_swapped_fits_a_method(kind: str) -> None:
    for part in PARTS[kind].values():
        fields: dict[str, Any] = {"curiosity": ValueCuriosity(), kind: part}  # which a policy that keeps the bonus apart needs
        assert vars(dataclasses.replace(SHARED, **fields))[kind] == part


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"batch_episodes": 64, "replay_episodes": 32},
            r"batch_episodes=64 exceeds replay_episodes=32: .* Lower the batch or raise the replay\.",
        ),
        ({"gamma": 1.1}, r"gamma=1\.1 must lie between 0 and 1"),
        ({"gamma": -0.1}, r"gamma=-0\.1 must lie between 0 and 1"),
        ({"gamma": math.nan}, r"gamma=nan must lie between 0 and 1"),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0 must be a number above 0"),
        ({"learning_rate": math.nan}, r"learning_rate=nan must be a number above 0"),
        ({"gradient_clip": math.inf}, r"gradient_clip=inf must be a number above 0"),
        ({"gradient_clip": -1.0}, r"gradient_clip=-1\.0 must be a number above 0"),
        ({"batch_episodes": 0}, r"batch_episodes=0 is not a whole number of at least 1: .*"),
        ({"replay_episodes": 0}, r"replay_episodes=0 is not a whole number of at least 1: .*"),
        ({"updates_per_episode": 0}, r"updates_per_episode=0 is not a whole number of at least 1: .*"),
        ({"target_interval": -5}, r"target_interval=-5 is not a whole number of at least 1: .*"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$") as caught:
        dataclasses.replace(SHARED, **change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "mixer", "advice"),
    [(Qtran(), Independent(), "--mixer vdn"), (Qtran(), QMIX(), "--mixer vdn"), (Weighted(), Independent(), "--mixer qmix")],
)
def test_a_loss_refuses_values_that_it_cannot_fit(loss: Any, mixer: Any, advice: str) -> None:
    with pytest.raises(UserError, match=advice):
        Method(loss=loss, mixer=mixer)


def test_roles_and_exploration_that_start_at_different_times_are_refused_in_one_line() -> None:
    epsilon = Epsilon(restart_at=50_000)
    with pytest.raises(UserError, match=r"^policy\.switch_at=100 and epsilon\.restart_at=50000 differ[^\n]*restart-at 100, or 0"):
        Method(policy=Rode(switch_at=100), epsilon=epsilon)
    assert Method(policy=Rode(switch_at=50_000), epsilon=epsilon).epsilon == epsilon
    assert Method(policy=Rode(switch_at=100)).epsilon.restart_at == 0
    assert Method(policy=Maven(), epsilon=epsilon).epsilon == epsilon


@pytest.mark.parametrize("change", [{"gamma": 0.0}, {"gamma": 1.0}, {"batch_episodes": 32, "replay_episodes": 32}])
def test_numbers_at_the_edge_of_sense_are_taken(change: dict[str, Any]) -> None:
    method = dataclasses.replace(SHARED, **change)
    assert {name: vars(method)[name] for name in change} == change


def test_methods_can_be_compared_and_hashed() -> None:
    assert hash(METHODS["vdn"].method) == hash(SHARED)
    assert METHODS["emc-vdn"].method != SHARED


@pytest.mark.parametrize(
    ("name", "eta", "remembered", "annealed"),
    [
        ("corridor", (0.1, 0.8, 200_000, 0.01), 0.01, 50_000),
        ("3s5z_vs_3s6z", (0.08, 0.95, 100_000, 0.01), None, 200_000),
        ("6h_vs_8z", (0.2, 0.9, 200_000, 0.01), None, 50_000),
        ("2s3z", (0.001, 0.9, 100_000, 0.0), 0.1, 50_000),
    ],
)
def test_the_starcraft_preset_knows_the_hardest_maps(name: str, eta: tuple[float, ...], remembered: float | None, annealed: int) -> None:
    for method in ("emc-qplex", "emc-td", "emc-wo-m", "qplex-global"):
        for env_name in (name, f"smac/{name}"):
            made = make_method(method, "starcraft", env_name)
            weight = made.curiosity.weight
            assert (weight.start, weight.rate, weight.every, weight.floor) == eta
            assert made.epsilon == Epsilon(steps=annealed)
            expected = remembered if method in ("emc-qplex", "emc-td") else None
            assert getattr(made.memory, "weight", None) == expected
    assert make_method("emc-wo-c", "starcraft", name).memory.weight == (remembered or 0.01)
    assert make_method("qmix", "starcraft", name) == make_method("qmix", "starcraft")
    assert make_method("emc-qplex", "released", name) == make_method("emc-qplex")
    assert make_method("rode", "starcraft", name).policy.clusters == (3 if name == "corridor" else 5)
    assert make_method("qmix-tuned", "starcraft", name).loss.td_lambda == (0.3 if name == "6h_vs_8z" else 0.6)


def test_the_starcraft_preset_has_the_constants_released_for_those_maps() -> None:
    assert all(entry.method.gamma == 0.99 and entry.method.replay == Uniform() for entry in STARCRAFT.values())
    twice = {name for name, entry in STARCRAFT.items() if entry.method.updates_per_episode == 2}
    assert twice == {name for name in METHODS if name.startswith(("emc", "qplex"))}
    remember = {name for name, entry in STARCRAFT.items() if entry.method.memory == EpisodicMemory(weight=0.1)}
    assert remember == {name for name in METHODS if name.startswith("emc")} - {"emc-wo-m"}
    attentive = {name for name, entry in STARCRAFT.items() if entry.method.mixer == AttentionQPLEX()}
    assert attentive == twice - {"emc-vdn", "emc-qmix", "emc-apart-vdn", "emc-apart-qmix"}
    emc = STARCRAFT["emc-qplex"].method.curiosity
    assert dataclasses.replace(emc, weight=DecayingWeight()) == ValueCuriosity()
    weight = dataclasses.asdict(vars(emc)["weight"])
    assert (weight["start"], weight["rate"], weight["every"], weight["floor"]) == (0.001, 0.9, 100_000, 0.0)
    unchanged = {"iql", "vdn", "qmix", "qtran", "cw-qmix", "ow-qmix", "maven", "rode", "qmix-tuned"}
    for name in unchanged:
        assert dataclasses.replace(STARCRAFT[name].method, gamma=METHODS[name].method.gamma) == METHODS[name].method


TUNED_BASIS: dict[str, Any] = {
    "optimiser": Adam(decay=0.9, second_decay=0.999, eps=1e-8),
    "gamma": 0.99,
    "learning_rate": 1e-3,
    "gradient_clip": 20.0,
    "batch_episodes": 128,
    "replay_episodes": 5_000,
    "updates_per_episode": 1,
    "episodes_per_update": 8,
    "target_interval": 25,
    "replay": Uniform(),
}


@pytest.mark.parametrize("env_name", ["gridworld", "predator-prey", "2s3z", "corridor", "6h_vs_8z", "smac/3m", "smax/6h_vs_8z", ""])
@pytest.mark.parametrize("name", METHODS)
def test_the_tuned_preset_puts_every_method_on_one_basis(name: str, env_name: str) -> None:
    method, hard = make_method(name, "tuned", env_name), env_name.endswith("6h_vs_8z")
    assert {field: vars(method)[field] for field in TUNED_BASIS} == TUNED_BASIS
    anneal, td_lambda = (500_000, 0.3) if hard else (100_000, 0.6)
    restart = {"restart_at": 50_000, "restart_steps": anneal} if name == "rode" else {}
    assert method.epsilon == Epsilon(steps=anneal, **restart)
    assert getattr(method.loss, "td_lambda", None) == (None if name == "qtran" else td_lambda)
    assert not isinstance(method.mixer, AttentionQPLEX)
    assert method.mixer == METHODS[name].method.mixer
    released = make_method(name, "starcraft", env_name) if env_name not in ("gridworld", "predator-prey", "") else make_method(name)
    phi_rates = {"optimiser": Adam(), "learning_rate": 1e-3, "gradient_clip": 20.0, "target_interval": 25}
    apart = phi_rates | {"scale_rate": 0.077}
    assert method.policy == (dataclasses.replace(released.policy, **apart) if "apart" in name else released.policy)
    assert method.memory == released.memory
    assert vars(method.curiosity).get("weight") == vars(released.curiosity).get("weight")
    if isinstance(method.curiosity, ValueCuriosity):
        phi, own = method.curiosity, released.curiosity
        one_step = name in ("emc-td", "emc-cen")
        learning = {"loss": vars(own)["loss"] if one_step else TD(td_lambda=td_lambda), "optimiser": Adam(), "soft_update": 0.04}
        rates = {"learning_rate": 1e-3, "predictor_learning_rate": 1e-3, "gradient_clip": 20.0, "target_interval": 25}
        assert phi == dataclasses.replace(own, **learning, **rates)


def test_the_tuned_qmix_is_the_tuned_presets() -> None:
    assert TUNED["qmix"].method == TUNED["qmix-tuned"].method == METHODS["qmix-tuned"].method
    assert make_method("qmix", "tuned", "6h_vs_8z") == make_method("qmix-tuned", "starcraft", "6h_vs_8z")


def test_what_follows_at_a_rate_is_as_fast_per_episode_on_the_tuned_basis() -> None:
    phi, apart, fewer = TUNED["emc-vdn"].method.curiosity, TUNED["emc-apart-vdn"].method.policy, TUNED_BASIS["episodes_per_update"]
    assert isinstance(phi, ValueCuriosity)
    assert isinstance(apart, Apart)
    assert phi.soft_update == pytest.approx(1 - (1 - ValueCuriosity().soft_update) ** fewer, rel=0.02)
    assert apart.scale_rate == pytest.approx(1 - (1 - Apart().scale_rate) ** fewer, rel=0.01)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("env_name", ["gridworld", "2s3z", "corridor", "6h_vs_8z"])
@pytest.mark.parametrize(
    ("words", "alike", "kind"),
    [
        ("qplex --curiosity value", "emc-qplex", "curiosity"),
        ("qmix --curiosity value", "emc-qmix", "curiosity"),
        ("qplex --curiosity rnd", "qplex-global", "curiosity"),
        ("qplex --curiosity counts", "qplex-counts", "curiosity"),
        ("emc-vdn --policy apart", "emc-apart-vdn", "policy"),
        ("emc-vdn --policy apart --curiosity rnd", "emc-apart-vdn", "policy"),
        ("qmix --loss td", "qmix", "loss"),
        ("emc-qplex --loss td", "emc-qplex", "loss"),  # its own, where it has it
        ("vdn --loss weighted", "ow-qmix", "loss"),
        ("emc-wo-c --memory episodic", "emc-wo-c", "memory"),
        ("rode --policy rode", "rode", "policy"),
        ("vdn --policy maven", "maven", "policy"),
    ],
)
def test_parts_by_name_have_the_constants_of_the_preset(preset: str, env_name: str, words: str, alike: str, kind: str) -> None:
    """As the method has them that is made of such parts."""
    name, *rest = words.split()
    made = configure([name, env_name, "--preset", preset, *rest]).method
    assert vars(made)[kind] == vars(make_method(alike, preset, env_name))[kind]


def test_a_memory_by_name_is_the_presets_where_it_has_one() -> None:
    weights = {
        ("corridor", "starcraft"): 0.01,
        ("2s3z", "starcraft"): 0.1,
        ("6h_vs_8z", "tuned"): EpisodicMemory().weight,
        ("gridworld", "released"): EpisodicMemory().weight,
    }
    for (env_name, preset), weight in weights.items():
        memory = configure(["qplex", env_name, "--preset", preset, "--memory", "episodic"]).method.memory
        assert memory == EpisodicMemory(weight=weight)


def test_every_part_by_name_is_that_of_its_exemplar() -> None:
    for kind, exemplars in EXEMPLARS.items():
        for name, method in exemplars.items():
            if (kind, name) != ("memory", "episodic"):  # which nothing has that was released for small tasks
                assert vars(METHODS[method].method)[kind] == PARTS[kind][name]


@dataclasses.dataclass(frozen=True)
class Keen(ValueCuriosity):
    """A part of one's own."""

    soft_update: float = 0.3
    learning_rate: float = 0.7


def test_a_part_of_ones_own_keeps_its_own_defaults() -> None:
    for preset in PRESETS:
        assert configure(["vdn", "3m", "--preset", preset, "--curiosity", f"{__name__}:Keen"]).method.curiosity == Keen()


def test_what_ablations_are_curious_about_stays_beside_a_policy_that_keeps_the_bonus_apart() -> None:
    for name in ("emc-td", "emc-cen", "emc-dec"):
        assert configure([name, "gridworld", "--policy", "apart"]).method.curiosity == make_method(name).curiosity


def test_curiosity_about_values_beside_a_policy_that_keeps_the_bonus_apart_is_about_the_policys_own() -> None:
    for words in (
        "emc-vdn gridworld --policy apart",
        "vdn gridworld --policy apart --curiosity value",
        "emc-apart-vdn gridworld --curiosity value",
    ):
        curiosity = configure(words.split()).method.curiosity
        assert isinstance(curiosity, ValueCuriosity)
        assert not curiosity.own_values
    own = configure(["emc-apart-vdn", "gridworld", "--curiosity", "value", "--curiosity.own-values"]).method.curiosity
    assert isinstance(own, ValueCuriosity)
    assert own.own_values  # if that is what is asked for
    assert configure(["emc-vdn", "gridworld", "--curiosity", "value"]).method == make_method("emc-vdn")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("vdn gridworld --policy apart", "add --curiosity value"),
        ("emc-apart-vdn gridworld --curiosity none", "add --curiosity value"),
        ("qtran gridworld --memory emu", "use --loss td"),
        ("ow-qmix gridworld --memory emu", "use --loss td"),
        ("emc-apart-vdn gridworld --policy recurrent", "add --policy apart, or --curiosity value"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(words: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        configure(words.split())
