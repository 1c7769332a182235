"""Parts of one's own: from the command line, in Python, in sweeps, offered by a package; and code that nobody vouches for."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emc
from emc import plugins
from emc.cli import main
from emc.configuration import configure
from emc.curiosity import NoCuriosity
from emc.losses import TD
from emc.memory import NoMemory
from emc.mixers import VDN
from emc.optimisers import Optimiser, RMSprop
from emc.parts import Mixed, Mixer
from emc.policies import RecurrentQ
from emc.runs.config import outside
from emc.runs.session import resume
from emc.sampling import Sampler
from emc.sweeps import Survey, Sweep, jobs_of, trusted_by

PAGE = Path(__file__).resolve().parents[1] / "docs" / "your-own-parts.md"
((NAME, CODE),) = re.findall(r"```python (\w+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
QUICK = {"steps": 40, "evaluate_every": 20, "test_episodes": 2}
WORDS = [word for name, value in QUICK.items() for word in (f"--{name.replace('_', '-')}", str(value))]
WORDS += ["--batch-episodes", "2", "--replay-episodes", "8", "--policy.hidden", "4"]


@pytest.fixture
def tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the tutorial's module, as a user would be in it."""
    (tmp_path / f"{NAME}.py").write_text(CODE)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop(NAME, None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of such a user: one, with the tutorial's mixer, whose module nobody has imported since."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / f"{NAME}.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [*sys.path])
        main(["train", "vdn", "gridworld", *WORDS, "--mixer", f"{NAME}:StateWeighted"])
    sys.modules.pop(NAME)
    return folder / "runs"


def test_the_pages_classes_have_at_most_fifteen_lines() -> None:
    classes = re.findall(r"@dataclasses.*?(?=\n\n\n|\Z)", CODE, flags=re.DOTALL)
    assert [len(body.strip().splitlines()) <= 15 for body in classes] == [True, True]


def test_a_part_of_ones_own_trains_is_recorded_and_comes_back_if_trusted(tutorial: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--mixer", f"{NAME}:StateWeighted", "--mixer.width", "8", "--curiosity", f"{NAME}:Counting"]
    main(["train", "vdn", "gridworld", *WORDS, *own])
    (run,) = tutorial.glob("runs/*/vdn/*")
    asked = json.loads((run / "manifest.json").read_text())["config"]["method"]
    assert asked["mixer"] == {"type": f"{NAME}:StateWeighted", "width": 8}
    assert asked["curiosity"]["type"] == f"{NAME}:Counting"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("curiosity_cells" in line for line in lines)
    capsys.readouterr()
    sys.modules.pop(NAME)
    with pytest.raises(SystemExit):
        main(["evaluate", str(run), "--episodes", "2", "--trust", f"{NAME}:StateWeighted"])
    assert f"add --trust {NAME}:Counting" in capsys.readouterr().err
    assert NAME in sys.modules  # the class that was trusted, and no other, was looked for
    both = ["--trust", f"{NAME}:StateWeighted", "--trust", f"{NAME}:Counting"]
    main(["evaluate", str(run), "--episodes", "2", *both])
    assert "win rate" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["resume", str(run), *both])
    assert "finished at step" in capsys.readouterr().err
    assert emc.load(run, trust=[f"{NAME}:StateWeighted", f"{NAME}:Counting"]).step >= 40


@pytest.mark.parametrize("trusted", [(), ("somebody:Else",)])
@pytest.mark.usefixtures("tutorial")
def test_nothing_of_an_untrusted_run_is_imported(trusted: tuple[str, ...], trained: Path) -> None:
    (run,) = trained.glob("*/vdn/*")
    with pytest.raises(emc.UserError, match=f"--trust {NAME}:StateWeighted"):
        emc.load(run, trust=trusted)
    assert NAME not in sys.modules


@dataclasses.dataclass(frozen=True)
class Mine(Mixer):
    """Twice the sum."""

    factor: float = 2.0

    def init(self, key: jax.Array, spec: emc.EnvSpec) -> tuple[()]:
        return ()

    def __call__(self, net: tuple[()], values: Any, state: jax.Array) -> Mixed:
        return Mixed(self.factor * jnp.sum(values.chosen, keepdims=True), jnp.zeros(()))


def small(**parts: Any) -> emc.Method:
    return dataclasses.replace(emc.make_method("vdn"), policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8, **parts)


def test_parts_that_the_caller_holds_need_no_trust(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Local(Mine):
        """Defined where nobody could import it."""

    for mixer in (Mine(), Local(3.0)):
        run = emc.train(small(mixer=mixer), "gridworld", runs=tmp_path, **QUICK)
        assert run.config.method.mixer == mixer
        assert emc.load(run).step >= 40
        assert emc.load(run.path, trust=type(mixer)).step >= 40
        with pytest.raises(emc.UserError, match="code outside emc"):
            emc.load(run.path)


def test_a_class_called_like_one_of_ours_is_not_taken_for_it() -> None:
    twin = dataclasses.make_dataclass("VDN", [], bases=(Mine,), frozen=True)()
    assert outside(small(mixer=VDN())) == ()
    (source,) = outside(small(mixer=twin))
    assert source.endswith(":VDN")


def test_a_resumed_run_of_ones_own_parts_equals_the_one_that_was_never_stopped(tmp_path: Path) -> None:
    from emc.runs.session import Interrupted, Keeping, Silent

    whole = emc.train(small(mixer=Mine()), "gridworld", runs=tmp_path / "whole", **QUICK)

    stopped: list[int] = []

    class Impatient(Silent):
        def show(self, status: Any) -> None:
            if 0 < status.steps < status.total_steps and not stopped:
                stopped.append(status.steps)
                import signal

                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted) as stop:
        emc.train(small(mixer=Mine()), "gridworld", runs=tmp_path / "cut", keeping=Keeping(0.0), display=Impatient(), **QUICK)
    cut = resume(stop.value.run.path, trust=[Mine])
    assert (cut.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()


@pytest.mark.usefixtures("tutorial")
def test_a_sweep_takes_parts_of_ones_own_and_trusts_them(trained: Path) -> None:
    jobs = jobs_of(Sweep((f"vdn --mixer {NAME}:StateWeighted",), ("gridworld",), (0, 1), (("mixer.width", ("4", "8")),)))
    assert [vars(job.config.method.mixer)["width"] for job in jobs] == [4, 4, 8, 8]
    assert trusted_by(jobs).names == {f"{NAME}:StateWeighted"}
    (job,) = jobs_of(Sweep((f"vdn --mixer {NAME}:StateWeighted",), ("gridworld",), flags=" ".join(WORDS)))
    assert Survey(trained, trusted_by([job])).state(job).value == "done"
    assert Survey(trained).state(job).value == "to do"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--mixer", f"{NAME}:Counting"], f"{NAME}:Counting is no mixer: derive it from emc.parts.Mixer"),
        (["--mixer", f"{NAME}:StateWeigted"], "Did you mean StateWeighted?"),
        (["--mixer", "nowhere:Thing"], "there is no module 'nowhere'"),
        (["--mixer", f"{NAME}:StateWeighted", "--mixer.widht", "8"], "Perhaps you meant --mixer.width?"),
        (["--mixer", "broken:Flat"], "Flat returns shapes ((1, 1), (1,))"),
        (["--mixer", "broken:Wrong"], "(broken.py, line 18)"),
        (["--curiosity", "broken:Growing"], "a step changes the structure, shapes or types of the state of curiosity"),
        (["--mixer", "broken:Needy"], "Give every field a default"),
    ],
)
def test_a_part_that_cannot_be_used_is_one_line_and_leaves_nothing(
    words: list[str], expected: str, tutorial: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tutorial / "broken.py").write_text(BROKEN)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["train", "vdn", "gridworld", *WORDS, *words])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not (tutorial / "runs").exists()


BROKEN = """import dataclasses

import jax.numpy as jnp

from emc.curiosity import NoCuriosity
from emc.mixers import VDN
from emc.parts import Mixed


class Flat(VDN):
    def __call__(self, net, values, state):
        return Mixed(jnp.sum(values.chosen)[None, None], jnp.zeros(1))


class Wrong(VDN):
    def __call__(self, net, values, state):
        # too many
        return Mixed(values.chosen @ jnp.zeros((77, 1)), jnp.zeros(()))


class Growing(NoCuriosity):
    def learn(self, state, batch, actors, gamma, env_steps):
        return (*state, 1.0), jnp.zeros_like(batch.reward), {}


@dataclasses.dataclass(frozen=True)
class Needy(VDN):
    width: int
"""


@dataclasses.dataclass(frozen=True)
class Recent(Sampler):
    """Any sampler of one's own."""

    def log_weight(self, priority: jax.Array) -> jax.Array:
        return -priority


@dataclasses.dataclass(frozen=True)
class Plain(Optimiser):
    """Any optimiser of one's own."""

    def __call__(self, learning_rate: float, clip: float) -> Any:
        return RMSprop()(learning_rate, clip)


class MyPolicy(RecurrentQ):
    """Any policy of one's own."""


class MyCuriosity(NoCuriosity):
    """Any curiosity of one's own."""


class MyMemory(NoMemory):
    """Any memory of one's own."""


class MyLoss(TD):
    """Any loss of one's own."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [("replay", "Recent"), ("optimiser", "Plain"), ("policy", "MyPolicy"), ("curiosity", "MyCuriosity"), ("memory", "MyMemory")],
)
def test_every_kind_of_part_can_be_ones_own(kind: str, name: str) -> None:
    config = configure(["vdn", "gridworld", f"--{kind}", f"{__name__}:{name}"])
    assert outside(config) == (f"{__name__}:{name}",)


def test_packages_offer_parts_and_environments_under_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        plugins.PARTS: [importlib.metadata.EntryPoint("mine", f"{__name__}:Mine", plugins.PARTS)],
        plugins.ENVS: [importlib.metadata.EntryPoint("race", "tests.envs.host_examples:Race", plugins.ENVS)],
    }
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points[group])
    plugins.offered.cache_clear()
    try:
        config = configure(["vdn", "gridworld", "--mixer", "mine", "--mixer.factor", "5"])
        assert config.method.mixer == Mine(5.0)
        assert emc.make_env("race").source == "tests.envs.host_examples:Race"
        from emc.runs.config import from_json, to_json

        assert from_json(to_json(config)) == config  # installed, so trusted
        with pytest.raises(emc.UserError, match="Did you mean mine"):
            configure(["vdn", "gridworld", "--mixer", "mina"])
    finally:
        plugins.offered.cache_clear()


def test_counting_pays_what_a_loop_over_steps_would(tutorial: Path) -> None:
    part: Any = plugins.imported(f"{NAME}:Counting")(weight=0.5, planes=3)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(6, 2, 4)).astype(np.float32)
    played = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [0, 0], [0, 0]], bool)
    batch = type("Batch", (), {"state": jnp.asarray(states), "played": jnp.asarray(played)})
    planes, visits = part.init(jax.random.key(1), emc.EnvSpec(2, 2, 3, 4, 5), None, None)
    (_, counted), bonus, _ = part.learn((planes, visits), batch, None, 0.9, 0)
    _, again, _ = part.learn((planes, counted), batch, None, 0.9, 0)
    expected, tally = np.zeros((6, 2)), np.zeros(8)
    for moment in range(5):
        for lane in range(2):
            if played[moment, lane]:
                cell = sum(int(x > 0) << i for i, x in enumerate(states[moment + 1, lane] @ np.asarray(planes)))
                tally[cell] += 1
                expected[moment, lane] = cell
    assert np.array_equal(counted, tally)
    assert np.allclose(bonus, 0.5 * played)
    wanted = [
        [0.5 / np.sqrt(tally[int(c)] + 1) if p else 0.0 for c, p in zip(cs, ps, strict=True)]
        for cs, ps in zip(expected, played, strict=True)
    ]
    assert np.allclose(again, wanted)
