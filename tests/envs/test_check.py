"""`emc check-env`: promises kept, and every way to break one."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc import plugins
from emc.cli import main
from emc.envs import make_env
from emc.envs.check import check
from emc.envs.hosted import Hosted
from emc.types import EnvSpec, Timestep

pytestmark = pytest.mark.usefixtures("warm_workers")
GENERATOR = np.random.default_rng(0)


class Untyped(eqx.Module):
    """A moment as it is outside these tests, where nothing looks at types."""

    obs: Any
    state: Any
    available: Any
    reward: Any
    terminated: Any
    truncated: Any
    won: Any


ODD: dict[str, tuple[str, Any]] = {"float": ("episode_limit", 4.0), "map": ("map_shape", ("a", 2)), "deep map": ("map_shape", (2, 2, 2))}


class Like(eqx.Module):
    """Plays a walk."""

    def reset(self, key: Any) -> Any:
        return Walk().reset(key)

    def step(self, world: Any, action: Any, key: Any) -> Any:
        return Walk().step(world, action, key)


class Unmade(Like):
    """Something goes wrong while it is made or looked at."""

    how: str = eqx.field(default="", static=True)

    def __check_init__(self) -> None:
        if self.how == "raises":
            raise ValueError("no such game")
        if self.how == "exits":
            sys.exit("no such game")

    @property
    def spec(self) -> EnvSpec:
        sys.exit("no such game")


class Raising(Unmade):
    how: str = eqx.field(default="raises", static=True)


class Exiting(Unmade):
    how: str = eqx.field(default="exits", static=True)


class Odd(Like):
    """Keeps every promise, but cannot be kept: comparing fails, or a field is an array that numpy holds."""

    table: Any = eqx.field(default_factory=lambda: np.ones(2), static=True)
    spec: EnvSpec = eqx.field(default_factory=lambda: Walk().spec, static=True)


class Dumb(Exception):
    """Cannot even say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


HELPERS = {  # JAX remembers what these were traced to
    "jit": jax.jit(lambda x: x + random.random()),
    "filter jit": eqx.filter_jit(lambda x: x + np.random.random()),  # noqa: NPY002
    "jit own": jax.jit(lambda x: x + np.random.default_rng().random()),
}


class Walk(eqx.Module):
    """A walk of four steps that can be made to break any promise."""

    breaks: str = eqx.field(default="", static=True)

    @property
    def spec(self) -> EnvSpec:
        limit = {"spec": 0, "negative": -3, "huge": 2**40}.get(self.breaks, 4)
        types = (
            {"obs_dtype": "bool"} if self.breaks.endswith("obs type") else {"state_dtype": "int8"} if self.breaks == "state type" else {}
        )
        spec = EnvSpec(n_agents=2, n_actions=2, obs_size=1, state_size=1, episode_limit=limit, **types)
        if self.breaks in ODD:
            object.__setattr__(spec, *ODD[self.breaks])  # as outside these tests, where nothing looks at types
        if self.breaks == "spec exit":
            sys.exit("bye")
        return spec

    def reset(self, key: Any) -> Any:
        return jnp.int32(0), self._show(jnp.int32(0), {"reset": 1.0, "finite reset": np.nan}.get(self.breaks, 0.0))

    def step(self, world: Any, action: Any, key: Any) -> Any:
        if self.breaks == "trace":
            world = world + (2 if bool(action[0] > 5) else 0)
        if self.breaks == "exit":
            sys.exit("enough")
        world = world + 1.0 if self.breaks == "world" else world + 1
        if self.breaks == "generator":
            raise GeneratorExit
        if self.breaks == "dumb":
            raise Dumb
        if self.breaks in HELPERS:
            return world, self._show(world, HELPERS[self.breaks](1.0))
        drawn = {"python": random.random, "numpy": np.random.random, "own": GENERATOR.random, "finite": lambda: np.nan}
        return world, self._show(world, drawn.get(self.breaks, float)() + 1.0)

    def _show(self, world: Any, reward: Any) -> Any:
        late = world >= (9 if self.breaks == "limit" else 4)
        return (Untyped if "type" in self.breaks else Timestep)(
            obs=jnp.full((2, 2 if self.breaks == "shape" else 1), jnp.nan if self.breaks == "NaN obs type" else world, jnp.float32),
            state=jnp.full(1, world * (200 if self.breaks == "state type" else 1), jnp.float32),
            available=jnp.full((2, 2), (world < 3) | (self.breaks != "available"), float if self.breaks == "mask type" else bool),
            reward=jnp.asarray(reward, jnp.int32 if self.breaks == "reward type" else jnp.float32),
            terminated=late.astype(float) if self.breaks == "flag type" else late,
            truncated=late & (self.breaks == "both"),
            won=(world == 2) & (self.breaks == "won"),
        )


class Mapped(Walk):
    """Has a map, and does with it what `breaks` says."""

    @property
    def spec(self) -> EnvSpec:
        return dataclasses.replace(super().spec, map_shape=(1, 5))

    def occupancy(self, state: Any) -> Any:
        if self.breaks == "map raises":
            raise ValueError("no such map")
        return jnp.zeros((2, 2) if self.breaks == "map shape" else (1, 5)).at[0, 0].set(1.0)

    def draw_outlines(self, axes: Any) -> None:
        if self.breaks == "draw":
            raise ValueError("no pen")

    def draw(self, axes: Any, world: Any) -> None:
        if self.breaks == "draw":
            sys.exit("no pen")
        axes.plot([0, int(world)], [0, 1])


class Incomparable(Walk):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no such thing")

    def __hash__(self) -> int:
        return 0


def broken(env: Any) -> list[str]:
    return [finding.promise for finding in check(env) if not finding.kept]


def test_an_environment_that_keeps_its_promises() -> None:
    assert broken(Walk()) == []
    assert broken(Hosted("tests.envs.host_examples:Race")) == []


BROKEN = pytest.mark.parametrize(
    ("breaks", "promise"),
    [
        ("spec", "whole numbers"),
        ("negative", "whole numbers"),
        ("float", "whole numbers"),
        ("map", "a map has a number of rows and one of columns"),
        ("deep map", "a map has a number of rows and one of columns"),
        ("huge", "none is too large"),
        ("exit", "compiles"),
        ("generator", "compiles"),
        ("dumb", "compiles"),
        ("jit", "everything random comes from the key"),
        ("filter jit", "everything random comes from the key"),
        ("jit own", "everything random comes from the key"),
        ("mask type", "available is true or false"),
        ("python", "everything random comes from the key"),
        ("numpy", "everything random comes from the key"),
        ("own", "everything random comes from the key"),
        ("trace", "compiles"),
        ("world", "same shapes and types"),
        ("finite", "finite"),
        ("shape", "obs always has the shape"),
        ("available", "available action"),
        ("reset", "no reward"),
        ("limit", "ends by its limit"),
        ("both", "both terminated and truncated"),
        ("won", "won moment is the last"),
        ("flag type", "terminated, truncated and won are true or false"),
        ("reward type", "the reward is one float"),
        ("obs type", "obs can be stored as bool"),
        ("state type", "state can be stored as int8"),
    ],
)


def test_what_is_no_number_is_found_once() -> None:
    assert [promise for promise in broken(Walk("finite reset")) if "finite" not in promise] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raising", "ValueError: no such game"),
        ("Exiting", "SystemExit: no such game"),
        ("Unmade", "SystemExit: no such game"),
        ("Odd", "plain numbers and words"),
        ("Incomparable", "RuntimeError: no such thing"),
    ],
)
@pytest.mark.parametrize("command", [["check-env"], ["train", "vdn"]])
def test_what_cannot_be_made_looked_at_or_kept_is_one_line(
    command: list[str], name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    runs = ["--runs", str(tmp_path / "runs"), "--steps", "40"] if command[0] == "train" else []
    with pytest.raises(SystemExit) as stop:
        main([*command, f"tests.envs.test_check:{name}", *runs])
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert said in out + err
    assert len(err.splitlines()) <= 1
    assert not (tmp_path / "runs").exists()
    assert [str(warning.message) for warning in recwarn if "static" in str(warning.message)] == []


@BROKEN
def test_a_broken_promise_is_named(breaks: str, promise: str) -> None:
    found = broken(Walk(breaks))
    assert any(promise in one for one in found), found


OTHERWISE = {"huge": "more than anything can be trained with", "spec": "is not a whole number", "negative": "is not a whole number"}
OTHERWISE |= {"float": "is not a whole number", "map": "is not a number of rows", "deep map": "is not a number of rows"}


@BROKEN
def test_nobody_trains_on_a_broken_promise(breaks: str, promise: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "vdn", "tests.envs.test_check:Walk", "--env.breaks", breaks, "--runs", str(tmp_path / "runs"), "--steps", "40"])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert OTHERWISE.get(breaks, promise) in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("breaks", "said"),
    [("map shape", "occupancy returns (2, 2), map_shape is (1, 5)"), ("map raises", "ValueError: no such map")],
)
@pytest.mark.parametrize("command", [["check-env"], ["train", "vdn"]])
def test_a_map_that_agents_cannot_be_counted_on_is_one_line_and_leaves_no_run(
    command: list[str], breaks: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*command, "tests.envs.test_check:Mapped", "--env.breaks", breaks])
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert said in out + err
    assert len(err.splitlines()) == 1
    assert [*tmp_path.iterdir()] == []


def test_an_environment_that_cannot_draw_itself_stops_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "tests.envs.test_check:Mapped"
    trained = ["--steps", "8", "--evaluate-every", "8", "--test-episodes", "1", "--replay-episodes", "8", "--policy.hidden", "4"]
    for breaks in ("draw", ""):
        main(["train", "vdn", source, "--env.breaks", breaks, "--runs", str(tmp_path / "runs"), "--batch-episodes", "2", *trained])
    capsys.readouterr()
    main(["report", str(tmp_path / "runs"), "--trust", source])
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'runs' / 'report.html'}\n"
    assert "cannot be drawn (SystemExit: no pen)" in shown.err
    assert "cannot draw the outlines of its map (ValueError: no pen)" in shown.err
    pictures = [*tmp_path.glob("runs/*/*/*/episode.gif")]
    assert len(pictures) == 1
    (bad,) = {path.parent for path in tmp_path.glob("runs/*/*/*/manifest.json")} - {path.parent for path in pictures}
    with pytest.raises(SystemExit) as stop:
        main(["render", str(bad), "--trust", source])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be drawn (SystemExit: no pen)" in line


@pytest.mark.skipif(sys.platform == "win32", reason="nothing interrupts an import there")
def test_a_module_that_swallows_every_interruption_ends_the_process_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "own_deaf.py").write_text("import time\nwhile True:\n    try:\n        time.sleep(9)\n    except:\n        pass\n")
    program = "import emc.plugins as p; p.IMPORT_SECONDS, p.MOST_RINGS = 0.5, 1; from emc.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program, "check-env", "own_deaf:Thing"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(plugins.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert found.stderr == "emc: own_deaf:Thing: importing own_deaf takes longer than 0.5 seconds: does it wait for something?\n"


@pytest.mark.parametrize("breaks", ["finite", "NaN obs type"])
def test_what_is_not_a_number_is_found_once(breaks: str) -> None:
    assert broken(Walk(breaks)) == ["observations, states and rewards are finite numbers"]


class Armed(Walk):
    """An array as a field cannot be kept with a run."""

    table: Any = eqx.field(default_factory=lambda: jnp.arange(3))


MODULES = {
    "leaves": ("import sys\nsys.exit(3)\n", "importing own_leaves raised SystemExit: 3"),
    "hangs": ("import time\nprint('waiting', flush=True)\nwhile True:\n    time.sleep(1)\n", "importing own_hangs takes longer than"),
    "stubborn": (
        "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except Exception:\n        pass\n",
        "importing own_stubborn takes longer than",
    ),
}


@pytest.mark.parametrize("command", ["check-env", "train vdn"])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_imported_is_one_line(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = MODULES[name]
    (tmp_path / f"own_{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    if name != "leaves":
        monkeypatch.setattr("emc.plugins.IMPORT_SECONDS", 1.0)
    monkeypatch.setattr("emc.envs.registry.imported", plugins.imported)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), f"own_{name}:Thing"])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["check-env", "train vdn"])
def test_a_field_that_cannot_be_kept_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "tests.envs.test_check:Armed"])
    assert stop.value.code == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert "holds more than plain numbers and words" in said.out + line
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["gridworld", "predator-prey", "two-step-game", "3m"])
def test_the_packages_own_environments_keep_them(name: str) -> None:
    env = make_env(name, **({"episode_limit": 8} if name in ("gridworld", "predator-prey") else {}))
    assert broken(env) == []


def test_an_episode_that_cannot_be_repeated_is_remarked_in_a_host_and_does_not_count() -> None:
    env = Hosted("tests.envs.host_examples:Moody")
    assert broken(env) == []
    (remark,) = [finding for finding in check(env) if finding.wish]
    assert remark.promise == "the same episode comes again given the seed"


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("Wordy", "", "could not convert string to float"),
        ("Unreliable", "how=die share=1.0", "died"),
        ("Unreliable", "how=hang share=1.0", "no answer in time"),
    ],
)
def test_a_host_that_cannot_be_played_is_a_broken_promise(name: str, words: str, reason: str) -> None:
    timeout = 2.0 if "hang" in words else 3600.0
    (finding,) = [one for one in check(Hosted(f"tests.envs.host_examples:{name}", words, timeout=timeout)) if not one.kept]
    assert finding.promise == "random episodes can be played"
    assert reason in finding.detail


@pytest.mark.usefixtures("real_workers")
def test_the_command_says_what_is_broken_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check-env", "tests.envs.test_check:Walk", "--env.breaks", "limit"])
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert "BROKEN  every episode ends by its limit: not over after 4 steps" in shown.out
    assert shown.err.startswith("emc: tests.envs.test_check:Walk breaks 1 of")
    main(["check-env", "tests.envs.test_check:Walk"])
    shown = capsys.readouterr()
    assert "BROKEN" not in shown.out
    assert "kept    it can be trained on" in shown.out
    main(["check-env", "tests.envs.host_examples:Moody"])
    assert "remark  the same episode comes again given the seed: it does not" in capsys.readouterr().out


def test_what_training_alone_would_find_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def play(*_: Any) -> None:
        raise TypeError("body_fun output and input must have identical types")

    monkeypatch.setattr("emc.runs.trial.play", play)
    with pytest.raises(SystemExit):
        main(["check-env", "tests.envs.test_check:Walk"])
    assert "BROKEN  it can be trained on: TypeError: body_fun output" in capsys.readouterr().out


def test_jax_is_told_from_plain_python() -> None:
    assert isinstance(make_env("tests.envs.test_check:Walk"), eqx.Module)
    assert not isinstance(make_env("tests.envs.test_check:Walk"), Hosted)
