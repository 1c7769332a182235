"""Every method of the paper as a composition of parts: the map of the package.

Constants follow the configuration that the authors released for the two small tasks (`EMC_toygame`, `Qplex_toygame`), with gamma = 0.9 for
every method there, as in its first release. Three things about it are easily missed, so they are said here: it trains EMC with prioritised
replay and the baselines without, it runs EMC without episodic memory, and nothing of that is in the paper. `PAPER` holds the same methods
with the constants of the paper's text. A preset never changes with the task: what runs is what was asked for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from emc.curiosity import NoCuriosity, ValueCuriosity
from emc.errors import UserError
from emc.losses import TD
from emc.memory import EpisodicMemory, NoMemory
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent
from emc.names import check_size, lookup
from emc.parts import Curiosity, Memory, Mixer, Part, Policy, ValueLoss
from emc.policies import RecurrentQ
from emc.sampling import Prioritised, Sampler, Uniform
from emc.schedules import DecayingWeight, Epsilon


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
    gamma: float = 0.9  # discount; 0.99 in later configurations of the released baselines
    learning_rate: float = 5e-4  # RMSprop
    gradient_clip: float = 10.0  # joint norm of agents and mixer
    batch_episodes: int = 32
    replay_episodes: int = 5_000
    updates_per_episode: int = 1  # gradient steps for each collected episode, whatever the number of parallel environments
    target_interval: int = 200  # gradient steps between copies to the target

    def __post_init__(self) -> None:
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"gamma={self.gamma} must lie between 0 and 1")
        for name in ("learning_rate", "gradient_clip"):
            value = vars(self)[name]
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name}={value} must be a number above 0")
        for name in ("batch_episodes", "replay_episodes", "updates_per_episode", "target_interval"):
            check_size(name, vars(self)[name], "choose a smaller or larger one", low=1)
        if self.batch_episodes > self.replay_episodes:
            raise UserError(
                f"batch_episodes={self.batch_episodes} exceeds replay_episodes={self.replay_episodes}: the first update could "
                "never happen. Lower the batch or raise the replay."
            )


@dataclasses.dataclass(frozen=True)
class Entry:
    """A named method: what it is, where it comes from, what it is made of."""

    method: Method
    about: str
    paper: str


TOY_QPLEX = QPLEX(kernels=4, layers=2, weighted=True)  # released Qplex_toygame
EMC = Method(curiosity=ValueCuriosity(), replay=Prioritised())  # released EMC_toygame: no memory
NOVELTY = "Zheng et al., NeurIPS 2021"

METHODS: Mapping[str, Entry] = {
    "iql": Entry(Method(mixer=Independent()), "independent learners", "Tan, ICML 1993"),
    "vdn": Entry(Method(mixer=VDN()), "the team's value is the sum of the agents'", "Sunehag et al., AAMAS 2018"),
    "qmix": Entry(Method(mixer=QMIX()), "a monotone mixing network", "Rashid et al., ICML 2018"),
    "qplex": Entry(Method(mixer=TOY_QPLEX), "a duplex duelling mixer, complete for greedy agents", "Wang et al., ICLR 2021"),
    "emc-vdn": Entry(EMC, "curiosity from predicting individual values, on VDN", NOVELTY),
    "emc-qmix": Entry(dataclasses.replace(EMC, mixer=QMIX()), "the same on QMIX", NOVELTY),
    "emc-qplex": Entry(dataclasses.replace(EMC, mixer=TOY_QPLEX), "the same on QPLEX", NOVELTY),
    "emc-wo-c": Entry(
        dataclasses.replace(EMC, mixer=TOY_QPLEX, curiosity=NoCuriosity(), memory=EpisodicMemory()),
        "ablation: episodic memory without curiosity",
        NOVELTY,
    ),
    "emc-wo-m": Entry(
        dataclasses.replace(EMC, mixer=TOY_QPLEX, memory=NoMemory()),
        "ablation: curiosity without episodic memory; the released preset has none on small tasks, so there it equals emc-qplex",
        NOVELTY,
    ),
}


def in_the_papers_words(method: Method) -> Method:
    """The same method with the constants of the paper's text: its general ones, for it gives none for small tasks, and no gamma at all."""
    curious = ValueCuriosity(
        weight=DecayingWeight(start=0.0001, rate=0.9, every=200_000, floor=0.0),
        loss=TD(double_q=False),
        soft_update=0.05,
        target_scale=1.0,
        squared=True,
        look_ahead=False,
    )
    return dataclasses.replace(
        method,
        loss=TD(double_q=False),
        curiosity=method.curiosity if method.curiosity == NoCuriosity() else curious,
        memory=EpisodicMemory(weight=0.1),
        replay=Uniform(),
    )


PAPER: Mapping[str, Entry] = {
    name: dataclasses.replace(entry, method=in_the_papers_words(entry.method)) if name.startswith("emc") else entry
    for name, entry in METHODS.items()
} | {
    "emc-wo-m": dataclasses.replace(
        METHODS["emc-wo-m"], method=dataclasses.replace(in_the_papers_words(METHODS["emc-wo-m"].method), memory=NoMemory())
    )
}

PRESETS: Mapping[str, Mapping[str, Entry]] = {"released": METHODS, "paper": PAPER}

PARTS: Mapping[str, Mapping[str, Part]] = {
    "mixer": {"independent": Independent(), "vdn": VDN(), "qmix": QMIX(), "qplex": TOY_QPLEX, "qplex-attention": AttentionQPLEX()},
    "curiosity": {"none": NoCuriosity(), "value": ValueCuriosity()},
    "memory": {"none": NoMemory(), "episodic": EpisodicMemory()},
    "replay": {"uniform": Uniform(), "prioritised": Prioritised()},
}  # what `--mixer NAME`, `--curiosity NAME`, ... may put in place of a method's own part


def make_method(name: str, preset: str = "released") -> Method:
    """A method of the paper by name."""
    return lookup("method", name, lookup("preset", preset, PRESETS)).method
