"""Every method of the paper as a composition of parts: the map of the package.

Constants follow the configuration that the authors released for the two small tasks (`EMC_toygame`, `Qplex_toygame`), with gamma = 0.9
for every method in it, as in its first release; QTRAN, weighted QMIX, MAVEN, RODE and the tuned QMIX keep the 0.99 of their own releases.
Three things about it are easily missed, so they are said here: it trains EMC with prioritised replay and the baselines without, it runs EMC
without episodic memory, and nothing of that is in the paper. `PAPER` holds the same methods with the constants of the paper's text,
`STARCRAFT` with those released for the StarCraft maps. `TUNED` puts every method on one basis, that of PyMARL2's tuned QMIX; what a method
adds to a basis (the weights of curiosity and memory) stays what was released for the kind of task, so there `make_method` asks whether an
environment is a battle. An environment names its preset, and `--preset` overrides it; the first line that a run prints, and its manifest,
say which it was and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from emc import plugins
from emc.curiosity import RND, Counts, NoCuriosity, ValueCuriosity
from emc.envs.registry import is_battle
from emc.errors import MISTAKES, UserError, in_short
from emc.lanes import Layout, layout_for
from emc.losses import TD, CentralTD, Qtran, Weighted
from emc.memory import EpisodicMemory, NoMemory
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent
from emc.optimisers import Adam, Optimiser, RMSprop
from emc.parts import Curiosity, Memory, Mixer, Policy, ValueLoss
from emc.plugins import imported, offered
from emc.policies import Apart, Maven, RecurrentQ, Rode
from emc.sampling import Prioritised, Sampler, Uniform
from emc.schedules import DecayingWeight, Epsilon
from emc.types import EnvSpec
from emc.user_input import check_size, lookup


@dataclasses.dataclass(frozen=True)
class Method:
    """A learning method: its parts and the numbers they share."""

    policy: Policy = RecurrentQ()
    mixer: Mixer = VDN()
    loss: ValueLoss = TD()
    curiosity: Curiosity = NoCuriosity()
    memory: Memory = NoMemory()
    replay: Sampler = Uniform()
    epsilon: Epsilon = Epsilon()
    optimiser: Optimiser = RMSprop()
    gamma: float = 0.9  # discount; 0.99 in later configurations of the released baselines
    learning_rate: float = 5e-4
    gradient_clip: float = 10.0  # joint norm of agents and mixer
    batch_episodes: int = 32
    replay_episodes: int = 5_000
    updates_per_episode: int = 1  # gradient steps for each collected episode, whatever the number of parallel environments
    episodes_per_update: int = 1  # collected episodes for each of those gradient steps
    target_interval: int = 200  # gradient steps between copies to the target
    lanes: int = 0  # that a batch's episodes are laid end to end in; 0: as suits the machine. It changes speed and rounding, nothing else
    block: int = 0  # moments that mixers and the like handle at once; 0: as suits the machine. It changes speed and rounding, nothing else

    def __post_init__(self) -> None:
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"gamma={self.gamma} must lie between 0 and 1")
        for name in ("learning_rate", "gradient_clip"):
            value = vars(self)[name]
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name}={value} must be a number above 0")
        for name in ("batch_episodes", "replay_episodes", "updates_per_episode", "episodes_per_update", "target_interval"):
            check_size(name, vars(self)[name], "choose a smaller or larger one", low=1)
        for name in ("lanes", "block"):
            check_size(name, vars(self)[name], "0 leaves the choice to emc", low=0)
        if reason := self.loss.refuse(self.mixer) or self.policy.refuse(self.epsilon.restart_at) or self.memory.refuse(self.loss):
            raise UserError(reason)
        if not self.policy.takes_bonus and self.curiosity == NoCuriosity():
            raise UserError("a policy that keeps the bonus apart has none without curiosity: add --curiosity value, rnd or counts")
        if self.policy.takes_bonus and isinstance(self.curiosity, ValueCuriosity) and not self.curiosity.own_values:
            raise UserError(
                "curiosity.own_values=False is for policies that keep the bonus apart, and this one is paid it: add --policy apart, or "
                "--curiosity value for values that learn from the task's reward alone"
            )
        if self.batch_episodes > self.replay_episodes:
            raise UserError(
                f"batch_episodes={self.batch_episodes} exceeds replay_episodes={self.replay_episodes}: the first update could "
                "never happen. Lower the batch or raise the replay."
            )

    def layout(self, spec: EnvSpec) -> Layout:
        """How a batch is laid out for learning."""
        return layout_for(self.batch_episodes, spec.n_agents, spec.usual_length, self.lanes, self.block)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A named method: what it is, where it comes from, what it is made of."""

    method: Method
    about: str
    paper: str


TOY_QPLEX = QPLEX(kernels=4, layers=2, weighted=True)  # released Qplex_toygame
EMC = Method(curiosity=ValueCuriosity(), replay=Prioritised())  # released EMC_toygame: no memory
EMC_QPLEX = dataclasses.replace(EMC, mixer=TOY_QPLEX)
APART = Method(
    policy=Apart(), curiosity=ValueCuriosity(own_values=False, weight=DecayingWeight(start=1.0, rate=1.0)), replay=Prioritised()
)  # ours: no weight to set
MAVEN_MIXER = QMIX(layers=1)  # its own released QMIX has hyper-networks of one layer
TUNED_QMIX = Method(
    mixer=QMIX(),
    loss=TD(td_lambda=0.6),
    optimiser=Adam(),
    epsilon=Epsilon(steps=100_000),
    gamma=0.99,
    learning_rate=0.001,
    gradient_clip=20.0,  # PyMARL2 clips at 10 what is half of this gradient: its loss has a factor 1/2
    batch_episodes=128,
    episodes_per_update=8,  # one gradient step for eight parallel episodes
    target_interval=25,  # every 200 episodes
)  # PyMARL2's published configuration


def curious(**fields: Any) -> Method:
    """EMC-QPLEX with another kind of curiosity."""
    return dataclasses.replace(EMC_QPLEX, curiosity=ValueCuriosity(**fields))


def with_gamma_099(method: Method) -> Method:
    """With the discount of the methods whose own releases never had 0.9."""
    return dataclasses.replace(method, gamma=0.99)


NOVELTY = "Zheng et al., NeurIPS 2021"
OURS = "this package: emc docs exploration"

METHODS: Mapping[str, Entry] = {
    "iql": Entry(Method(mixer=Independent()), "independent learners", "Tan, ICML 1993"),
    "vdn": Entry(Method(mixer=VDN()), "the team's value is the sum of the agents'", "Sunehag et al., AAMAS 2018"),
    "qmix": Entry(Method(mixer=QMIX()), "a monotone mixing network", "Rashid et al., ICML 2018"),
    "qmix-tuned": Entry(TUNED_QMIX, "QMIX as PyMARL2 tuned it: TD(lambda), Adam, large batches", "Hu et al., 2021"),
    "qplex": Entry(Method(mixer=TOY_QPLEX), "a duplex duelling mixer, complete for greedy agents", "Wang et al., ICLR 2021"),
    "qtran": Entry(with_gamma_099(Method(loss=Qtran())), "a joint value that the agents' sum must meet and bound", "Son et al., ICML 2019"),
    "cw-qmix": Entry(
        with_gamma_099(Method(mixer=QMIX(), loss=Weighted("central"))),
        "QMIX weighted towards joint actions that may be best, judged by an unrestricted value",
        "Rashid et al., NeurIPS 2020",
    ),
    "ow-qmix": Entry(
        with_gamma_099(Method(mixer=QMIX(), loss=Weighted("optimistic"))),
        "QMIX weighted where it underestimates",
        "Rashid et al., NeurIPS 2020",
    ),
    "maven": Entry(
        with_gamma_099(Method(policy=Maven(), mixer=MAVEN_MIXER)),
        "agents commit to a latent for a whole episode",
        "Mahajan et al., NeurIPS 2019",
    ),
    "rode": Entry(
        with_gamma_099(Method(policy=Rode(), mixer=QMIX(), epsilon=Epsilon(steps=70_000, restart_at=50_000, restart_steps=70_000))),
        "roles with action spaces of their own, found by clustering what actions do",
        "Wang et al., ICLR 2021",
    ),
    "qplex-global": Entry(
        dataclasses.replace(EMC_QPLEX, curiosity=RND(of="state")), "QPLEX with curiosity about the global state", NOVELTY
    ),
    "qplex-local": Entry(
        dataclasses.replace(EMC_QPLEX, curiosity=RND(of="history")), "QPLEX with curiosity about local histories", NOVELTY
    ),
    "qplex-counts": Entry(
        dataclasses.replace(EMC_QPLEX, curiosity=Counts()),
        "QPLEX with curiosity about joint states seldom visited",
        "Strehl and Littman, 2008",
    ),
    "qplex-emu": Entry(
        dataclasses.replace(EMC_QPLEX, curiosity=NoCuriosity(), memory=EpisodicMemory(weight=0.0, incentive=True)),
        "QPLEX with EMU's incentive towards states from which others have won; without its learnt embedding of states",
        "Na et al., ICLR 2024",
    ),
    "emc-vdn": Entry(EMC, "curiosity from predicting individual values, on VDN", NOVELTY),
    "emc-qmix": Entry(dataclasses.replace(EMC, mixer=QMIX()), "the same on QMIX", NOVELTY),
    "emc-qplex": Entry(EMC_QPLEX, "the same on QPLEX", NOVELTY),
    "emc-apart-vdn": Entry(APART, "EMC's curiosity in a value function of its own beside the policy's: no weight to set", OURS),
    "emc-apart-qmix": Entry(dataclasses.replace(APART, mixer=QMIX()), "the same on QMIX", OURS),
    "emc-apart-qplex": Entry(dataclasses.replace(APART, mixer=TOY_QPLEX), "the same on QPLEX", OURS),
    "emc-wo-c": Entry(
        dataclasses.replace(EMC_QPLEX, curiosity=NoCuriosity(), memory=EpisodicMemory()),
        "ablation: episodic memory without curiosity; on small tasks the released emc-qplex has no memory, so there it differs in both",
        NOVELTY,
    ),
    "emc-wo-m": Entry(
        dataclasses.replace(EMC_QPLEX, memory=NoMemory()),
        "ablation: curiosity without episodic memory; the released preset has none on small tasks, so there it equals emc-qplex",
        NOVELTY,
    ),
    "emc-td": Entry(curious(novelty="td_error"), "ablation: curiosity from the error of the team's value", NOVELTY),
    "emc-ind": Entry(curious(novelty="change"), "ablation: curiosity from how fast individual values change", NOVELTY),
    "emc-cen": Entry(curious(novelty="td_error", loss=CentralTD()), "ablation: curiosity from the error of a central critic", NOVELTY),
    "emc-dec": Entry(curious(mixer=Independent()), "ablation: curiosity from predicting values that agents learn each on its own", NOVELTY),
}


PAPER_CURIOSITY: dict[str, Any] = {
    "weight": DecayingWeight(start=0.0001, rate=0.9, every=200_000, floor=0.0),
    "soft_update": 0.05,
    "target_scale": 1.0,
    "squared": True,
    "look_ahead": False,
}  # what the paper's text says of it, in general: it gives no constants for small tasks


def with_the_papers_constants(name: str, method: Method) -> Method:
    """A method that the paper introduces, with the constants of its text; it names no gamma."""
    plain = TD(double_q=False)
    if not name.startswith("emc"):
        curiosity = dataclasses.replace(method.curiosity, weight=PAPER_CURIOSITY["weight"])
        return dataclasses.replace(method, loss=plain, curiosity=curiosity, replay=Uniform())
    learning: dict[str, Any] = {} if name == "emc-cen" else {"loss": plain}  # the central critic has a loss of its own
    curiosity = method.curiosity if name == "emc-wo-c" else dataclasses.replace(method.curiosity, **PAPER_CURIOSITY, **learning)
    memory = NoMemory() if name == "emc-wo-m" else EpisodicMemory(weight=0.1)
    return dataclasses.replace(method, loss=plain, curiosity=curiosity, memory=memory, replay=Uniform())


PAPER: Mapping[str, Entry] = {
    name: dataclasses.replace(entry, method=with_the_papers_constants(name, entry.method)) if entry.paper == NOVELTY else entry
    for name, entry in METHODS.items()
}

STARCRAFT_WEIGHT = DecayingWeight(start=0.001, rate=0.9, every=100_000, floor=0.0)
HARDEST: Mapping[str, tuple[DecayingWeight, float, int]] = {
    "corridor": (DecayingWeight(start=0.1, rate=0.8, every=200_000, floor=0.01), 0.01, 50_000),
    "3s5z_vs_3s6z": (DecayingWeight(start=0.08, rate=0.95, every=100_000, floor=0.01), 0.0, 200_000),
    "6h_vs_8z": (DecayingWeight(start=0.2, rate=0.9, every=200_000, floor=0.01), 0.0, 50_000),
}  # maps that the released EMC has constants of its own for: the curiosity's weight, the memory's (0: none), steps of epsilon


def on_starcraft(name: str, method: Method) -> Method:
    """A method with the constants that were released for the StarCraft maps, where that differs from the small tasks."""
    changes: dict[str, Any] = {"gamma": 0.99, "replay": Uniform()}
    if method.mixer == TOY_QPLEX:
        changes["mixer"] = AttentionQPLEX()
    if method.mixer == TOY_QPLEX or name.startswith("emc"):
        changes["updates_per_episode"] = 2
    if name.startswith("emc") and name != "emc-wo-m":
        changes["memory"] = EpisodicMemory(weight=0.1)
    if METHODS[name].paper != OURS and method.curiosity != NoCuriosity():
        changes["curiosity"] = dataclasses.replace(method.curiosity, weight=STARCRAFT_WEIGHT)
    return dataclasses.replace(method, **changes)


def on_map(name: str, method: Method, map_name: str) -> Method:
    """A method with the StarCraft constants, and what was released for one map alone."""
    if name == "rode" and map_name == "corridor":
        return dataclasses.replace(method, policy=Rode(clusters=3))
    if name == "qmix-tuned" and map_name == "6h_vs_8z":
        return dataclasses.replace(method, loss=TD(td_lambda=0.3), epsilon=Epsilon(steps=500_000))
    if METHODS[name].paper != NOVELTY or map_name not in HARDEST:
        return method
    weight, remembered, annealed = HARDEST[map_name]
    changes: dict[str, Any] = {"epsilon": Epsilon(steps=annealed)}
    if name == "emc-wo-c":  # an ablation that has nothing but memory keeps it also where EMC was released without
        changes["memory"] = EpisodicMemory(weight=remembered or 0.01)
    else:
        changes["curiosity"] = dataclasses.replace(method.curiosity, weight=weight)
        if name.startswith("emc") and name != "emc-wo-m":
            changes["memory"] = EpisodicMemory(weight=remembered) if remembered else NoMemory()
    return dataclasses.replace(method, **changes)


STARCRAFT: Mapping[str, Entry] = {
    name: dataclasses.replace(entry, method=on_starcraft(name, entry.method)) for name, entry in METHODS.items()
}

TUNED_BASIS: dict[str, Any] = {
    name: vars(TUNED_QMIX)[name]
    for name in (
        "optimiser",
        "gamma",
        "learning_rate",
        "gradient_clip",
        "batch_episodes",
        "replay_episodes",
        "updates_per_episode",
        "episodes_per_update",
        "target_interval",
        "replay",
    )
}  # what PyMARL2's configurations of VDN, QMIX, QPLEX and weighted QMIX share, QMIX's optimiser and replay among it
# Ours, for what PyMARL2 does not have: curiosity learns like the policy, and what follows at a rate per gradient step follows eight times
# as fast, for there are eight times fewer of them per episode than on the small tasks (1 - 0.995 ** 8 = 0.039, 1 - 0.99 ** 8 = 0.077).
TUNED_PHI: dict[str, Any] = {name: TUNED_BASIS[name] for name in ("optimiser", "learning_rate", "gradient_clip", "target_interval")} | {
    "predictor_learning_rate": TUNED_BASIS["learning_rate"],
    "soft_update": 0.04,
}


def on_tuned_basis(method: Method, map_name: str = "") -> Method:
    """A method as PyMARL2 would train it, with the parts that it has."""
    anneal, td_lambda = (500_000, 0.3) if map_name == "6h_vs_8z" else (TUNED_QMIX.epsilon.steps, 0.6)
    restart = {"restart_steps": anneal} if method.epsilon.restart_at else {}
    changes: dict[str, Any] = TUNED_BASIS | {"epsilon": dataclasses.replace(method.epsilon, steps=anneal, **restart)}
    if isinstance(method.mixer, AttentionQPLEX):
        changes["mixer"] = TOY_QPLEX  # the mixer of PyMARL2's QPLEX, on every map
    if isinstance(method.loss, TD | Weighted):  # QTRAN has one step there too
        changes["loss"] = dataclasses.replace(method.loss, td_lambda=td_lambda)
    if isinstance(method.curiosity, ValueCuriosity):
        # Where the error of phi is the bonus it stays what the paper defines, an error of one step.
        one_step = method.curiosity.novelty == "td_error"
        loss = method.curiosity.loss if one_step else TD(td_lambda=td_lambda)
        changes["curiosity"] = dataclasses.replace(method.curiosity, loss=loss, **TUNED_PHI)
    if isinstance(method.policy, Apart):
        own = {name: TUNED_PHI[name] for name in ("optimiser", "learning_rate", "gradient_clip", "target_interval")}
        changes["policy"] = dataclasses.replace(method.policy, scale_rate=0.077, **own)
    if isinstance(method.curiosity, RND):
        changes["curiosity"] = dataclasses.replace(method.curiosity, learning_rate=TUNED_BASIS["learning_rate"])
    return dataclasses.replace(method, **changes)


TUNED: Mapping[str, Entry] = {name: dataclasses.replace(entry, method=on_tuned_basis(entry.method)) for name, entry in METHODS.items()}

PRESETS: Mapping[str, Mapping[str, Entry]] = {"released": METHODS, "paper": PAPER, "starcraft": STARCRAFT, "tuned": TUNED}

PARTS: Mapping[str, Mapping[str, object]] = {
    "policy": {"recurrent": RecurrentQ(), "apart": Apart(), "maven": Maven(), "rode": Rode()},
    "loss": {"td": TD(), "weighted": Weighted(), "qtran": Qtran()},
    "optimiser": {"rmsprop": RMSprop(), "adam": Adam()},
    "mixer": {"independent": Independent(), "vdn": VDN(), "qmix": QMIX(), "qplex": TOY_QPLEX, "qplex-attention": AttentionQPLEX()},
    "curiosity": {"none": NoCuriosity(), "value": ValueCuriosity(), "rnd": RND(), "counts": Counts()},
    "memory": {"none": NoMemory(), "episodic": EpisodicMemory(), "emu": EpisodicMemory(weight=0.0, incentive=True)},
    "replay": {"uniform": Uniform(), "prioritised": Prioritised()},
}  # what `--mixer NAME`, `--curiosity NAME`, ... may put in place of a method's own part

EXEMPLARS: Mapping[str, Mapping[str, str]] = {
    "policy": {"apart": "emc-apart-vdn", "maven": "maven", "rode": "rode"},
    "loss": {"td": "vdn", "weighted": "ow-qmix", "qtran": "qtran"},
    "curiosity": {"value": "emc-vdn", "rnd": "qplex-global", "counts": "qplex-counts"},
    "memory": {"episodic": "emc-qplex", "emu": "qplex-emu"},
}  # a method that is made of the part: what a preset says of parts, it says of methods

KINDS: Mapping[str, type] = {
    "policy": Policy,
    "loss": ValueLoss,
    "optimiser": Optimiser,
    "mixer": Mixer,
    "curiosity": Curiosity,
    "memory": Memory,
    "replay": Sampler,
}  # the class that a part of one's own is derived from


@dataclasses.dataclass(frozen=True)
class Preset:
    """Whose constants a method has, and why."""

    name: str
    why: str

    @classmethod
    def of(cls, asked: str, env_name: str, usual: str) -> Preset:
        """The one that was asked for, else the one that an environment names."""
        return cls(asked, "as asked for") if asked else cls(usual, f"the one of {env_name}")


def make_part(kind: str, name: str) -> Any:
    """A part by name: one of `PARTS`, one that an installed package offers, or one's own as `module:Class`."""
    source = name if name in PARTS[kind] else offered(plugins.PARTS).get(name, name)
    if ":" not in source:
        return lookup(kind, name, {**PARTS[kind], **offered(plugins.PARTS)})
    try:
        part = imported(source)()
    except UserError:
        raise
    except MISTAKES as error:  # whatever the user's class does wrong
        said = error if isinstance(error, TypeError) else in_short(error)
        raise UserError(f"{source} cannot be made: {said}. Give every field a default; flags change it") from error
    if not isinstance(part, KINDS[kind]):
        base = KINDS[kind]
        raise UserError(f"{source} is no {kind}: derive it from {base.__module__}.{base.__name__}, see emc docs your-own-parts")
    return part


def part_of_preset(kind: str, name: str, method_name: str, preset: str, env_name: str) -> Any:
    """A part by name with the constants that a preset has for it: in the method that it is chosen for, else in one that is made of it."""
    part = make_part(kind, name)
    if name not in PARTS[kind]:
        return part  # one's own, with its own defaults
    has_it = vars(METHODS[method_name].method)[kind] == part
    whose = method_name if has_it else EXEMPLARS.get(kind, {}).get(name, "")
    found = vars(make_method(whose, preset, env_name))[kind] if whose else part
    return found if type(found) is type(part) else part  # a preset may leave the part out


def with_parts(method_name: str, names: Mapping[str, str], preset: str, env_name: str) -> Method:
    """A method with some of its parts chosen by name.

    Beside a policy that keeps the bonus apart, curiosity from predicting summed values predicts the policy's own, as in emc-apart.
    """
    made = make_method(method_name, preset, env_name)
    chosen = {kind: part_of_preset(kind, name, method_name, preset, env_name) for kind, name in names.items()}
    policy, curiosity = (chosen.get(kind, vars(made)[kind]) for kind in ("policy", "curiosity"))
    if {"policy", "curiosity"} & chosen.keys() and isinstance(policy, Apart) and isinstance(curiosity, ValueCuriosity):
        summed = curiosity.novelty != "td_error" and curiosity.mixer == VDN() and isinstance(curiosity.loss, TD)
        chosen["curiosity"] = dataclasses.replace(curiosity, own_values=not summed)
    return dataclasses.replace(made, **chosen)


def make_method(name: str, preset: str = "released", env_name: str = "") -> Method:
    """A method by name. `starcraft` knows what was released for the map that an environment's name ends in, `tuned` also what was for
    battles and what for other tasks."""
    method = lookup("method", name, lookup("preset", preset, PRESETS)).method
    map_name = env_name.rpartition("/")[2]
    if preset == "starcraft":
        return on_map(name, method, map_name)
    if preset == "tuned" and is_battle(env_name):
        return on_tuned_basis(on_map(name, STARCRAFT[name].method, map_name), map_name)
    return method
