"""Environments in worker processes, and the adapters for foreign interfaces."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import signal
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import make_env
from emc.envs.gridworld import Gridworld
from emc.envs.hosted import Hosted, make_host, parse_arguments
from emc.envs.pettingzoo import PettingZoo
from emc.envs.pymarl import PyMARL
from emc.envs.registry import task
from emc.envs.workers import Failure, Worker, Workers, decode, encode
from emc.errors import RunError, UserError
from emc.methods import make_method
from emc.policies import RecurrentQ
from emc.runs.config import RunConfig, from_json, to_json
from emc.runs.jsonl import read_metrics
from emc.runs.session import LOST, Interrupted, Silent, Status, loop_of, resume, start
from emc.training.host_loop import play_hosted
from emc.training.learner import actors_of, init_learner
from emc.training.loop import Budget, Until
from emc.training.rollout import play
from emc.types import EnvSpec, HostTimestep
from tests.envs.host_examples import Race
from tests.twins import bits

pytestmark = pytest.mark.usefixtures("warm_workers")
EXAMPLES = "tests.envs.host_examples"
METHOD = dataclasses.replace(make_method("vdn"), policy=RecurrentQ(hidden=8), batch_episodes=2, replay_episodes=8)


def config(env: Hosted, steps: int = 60, parallel_envs: int = 2) -> RunConfig:
    budget = Budget(steps=steps, evaluate_every=30, test_episodes=3, parallel_envs=parallel_envs)
    return RunConfig("vdn", METHOD, "hosted", env, budget, (0,))


def test_arguments_are_python_literals_or_words() -> None:
    assert parse_arguments("a=1 b=0.5 c=True d=3m e=(1,2)") == {"a": 1, "b": 0.5, "c": True, "d": "3m", "e": (1, 2)}
    for wrong in ("7", "a:1", "1a=2"):
        with pytest.raises(UserError, match="name=value"):
            parse_arguments(wrong)
    assert parse_arguments("a='two words' b=4.10 c=4.10", texts=("c",)) == {"a": "two words", "b": 4.1, "c": "4.10"}
    with pytest.raises(UserError, match="No closing quotation"):
        parse_arguments("a='two")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_such_module:Env", "no module 'no_such_module'"),
        (f"{EXAMPLES}:Rase", "Did you mean Race"),
        (f"{EXAMPLES}:EnvSpec", "cannot be made"),
        ("Race", "module:Class"),
        ("smca/3m", "Did you mean smac"),
        ("pathlib:Path", "is not an environment"),
    ],
)
def test_what_is_no_environment_is_refused_in_one_line(source: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make_host(source, "")
    assert "\n" not in str(error.value)


def test_a_module_that_cannot_be_imported_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_env_module.py").write_text("class Env:\n    def reset(self:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="importing broken_env_module raised SyntaxError"):
        make_host("broken_env_module:Env", "")


def test_a_moment_survives_the_wire_and_a_wrong_shape_does_not() -> None:
    spec = Race.spec
    now = HostTimestep([[1, 2], [3, 4]], [5, 6], [[True, False, True]] * 2, 0.1, terminated=True, won=True)
    again = decode(spec, encode(spec, now))
    np.testing.assert_array_equal(again.obs, now.obs)
    np.testing.assert_array_equal(again.state, now.state)
    np.testing.assert_array_equal(again.available, now.available)
    assert (again.reward, again.terminated, again.truncated, again.won) == (0.1, True, False, True)
    with pytest.raises(UserError, match=r"state has shape \(3,\), its spec says \(2,\)"):
        encode(spec, dataclasses.replace(now, state=[1, 2, 3]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": [[1, 2], [np.nan, 4]]}, "obs has a number that is not finite"),
        ({"state": [5, np.inf]}, "state has a number that is not finite"),
        ({"reward": -np.inf}, "reward has a number that is not finite"),
        ({"available": [[True] * 3, [False] * 3]}, "available leaves agent 1 no action"),
    ],
)
def test_what_cannot_be_learnt_from_is_blamed_on_the_environment(change: dict[str, Any], message: str) -> None:
    now = HostTimestep([[1, 2], [3, 4]], [5, 6], [[True, False, True]] * 2)
    with pytest.raises(UserError, match=message):
        encode(Race.spec, dataclasses.replace(now, **change))


@pytest.mark.usefixtures("real_workers")
def test_a_hosted_gridworld_plays_the_episodes_of_the_compiled_rollout() -> None:
    env = Gridworld(episode_limit=12)
    actors = actors_of(METHOD, init_learner(METHOD, env.spec, jax.random.key(1)))
    key, epsilon = jax.random.key(2), jnp.float32(0.5)
    compiled, outcome = jax.jit(lambda actors: play(env, actors, key, epsilon, 3))(actors)
    with contextlib.closing(Workers(Hosted(f"{EXAMPLES}:HostGridworld"), 3)) as workers:
        hosted, hosted_outcome = play_hosted(workers, actors, key, epsilon, 3)
    for name in ("obs", "state", "available", "action", "reward", "terminated", "played"):
        np.testing.assert_array_equal(np.asarray(getattr(hosted, name)), np.asarray(getattr(compiled, name)), err_msg=name)
    for ours, theirs in zip(jax.tree.leaves(hosted_outcome), jax.tree.leaves(outcome), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_more_episodes_than_workers_are_all_played_with_seeds_of_their_own() -> None:
    env = Hosted(f"{EXAMPLES}:Race")
    actors = actors_of(METHOD, init_learner(METHOD, env.spec, jax.random.key(1)))
    with contextlib.closing(Workers(env, 2)) as workers:
        episodes, outcome = play_hosted(workers, actors, jax.random.key(0), jnp.float32(1.0), 5)
    assert len(np.unique(np.asarray(episodes.state)[:, 0, 0])) == 5
    assert (np.asarray(outcome.length) >= 3).all()
    assert not np.asarray(episodes.action)[np.asarray(episodes.played)].max() > 1  # the third action is never available


def test_a_run_whose_workers_die_fifty_times_finishes_with_nothing_else_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = Hosted(f"{EXAMPLES}:Unreliable", "how=die share=0.12", patience=1000)
    light = Path(__file__).with_name("light_worker.py")
    introduction = "I" + json.dumps(dataclasses.asdict(env.spec))
    monkeypatch.setattr("emc.envs.workers.PROGRAM", (str(light), introduction))
    run = start(config(env, steps=330, parallel_envs=2), tmp_path)
    lost = read_metrics(run.path / LOST)
    assert len(lost) >= 50
    lines = read_metrics(run.path / "metrics.jsonl")
    assert lines[-1]["steps"] >= 330
    for line in lines:
        if line["kind"] == "eval":
            assert len(line["return"]) == 3  # every test episode is complete
            assert all(3 <= length <= 6 for length in line["length"])


@pytest.mark.parametrize(("how", "reason"), [("die", "died .signal 9."), ("raise", "RuntimeError"), ("hang", "no answer in time")])
def test_a_worker_that_fails_costs_its_episode_and_is_replaced(how: str, reason: str) -> None:
    with contextlib.closing(Workers(Hosted(f"{EXAMPLES}:Unreliable", f"how={how} share=1.0", timeout=3600.0), 1)) as workers:
        workers.reset(0, 7)
        (first,) = workers.answers([0]).values()
        assert isinstance(first, HostTimestep)
        patient = workers.env
        if how == "hang":
            workers.env = dataclasses.replace(patient, timeout=1.0)  # nothing would come, however long one waits
        workers.step(0, np.zeros(2, int))
        (second,) = workers.answers([0]).values()
        assert isinstance(second, Failure)
        assert re.search(reason, second.reason)
        workers.env = patient
        workers.reset(0, 8)
        (third,) = workers.answers([0]).values()
        assert isinstance(third, HostTimestep)


@pytest.mark.usefixtures("real_workers")
def test_an_error_says_where_it_is_and_its_environment_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emc.envs.workers.CLOSE_SECONDS", 3600.0)
    note = tmp_path / "closed"
    with contextlib.closing(Workers(Hosted(f"{EXAMPLES}:Careful", f"note={note}"), 1)) as workers:
        workers.reset(0, 7)
        workers.answers([0])
        workers.step(0, np.zeros(2, int))
        (failure,) = workers.answers([0]).values()
        assert isinstance(failure, Failure)
        assert re.search(r"raised EOFError: the game has closed its pipe \(.*host_examples\.py:\d+ in step\)$", failure.reason)
        assert note.exists()


@pytest.mark.usefixtures("real_workers")
def test_an_environment_is_closed_when_nobody_is_left_to_play_it(tmp_path: Path) -> None:
    note = tmp_path / "closed"
    worker = Worker(Hosted(f"{EXAMPLES}:Careful", f"note={note}"))
    worker.introduction()
    worker.connection.close()  # as when the parent is killed
    assert worker.process.wait(timeout=1800) == 0
    assert note.exists()


def test_a_worker_that_dies_while_starting_costs_no_more_than_its_episode(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    env = Hosted(f"{EXAMPLES}:Numbered", f"folder={tmp_path / 'made'} starting=(2,3)")  # the first one only says its sizes
    run = start(config(env), tmp_path)
    assert [line["reason"] for line in read_metrics(run.path / LOST)] == ["died (signal 9)"] * 2
    assert read_metrics(run.path / "metrics.jsonl")[-1]["steps"] >= 60


def test_workers_that_all_fail_at_one_moment_are_one_failure_each(tmp_path: Path) -> None:
    env = Hosted(f"{EXAMPLES}:Numbered", f"folder={tmp_path} playing={','.join(map(str, range(1, 4)))}", patience=2)
    actors = actors_of(METHOD, init_learner(METHOD, env.spec, jax.random.key(1)))
    with contextlib.closing(Workers(env, 3)) as workers:
        _, outcome = play_hosted(workers, actors, jax.random.key(0), jnp.float32(1.0), 3)
        assert workers.failures == ["died (signal 9)"] * 3
    assert (np.asarray(outcome.length) >= 3).all()


def test_an_environment_that_never_starts_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="cannot be made with nonsense=1"):
        _ = Hosted(f"{EXAMPLES}:Race", "nonsense=1").spec


def test_repeated_failures_stop_the_run_with_a_checkpoint_that_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    doomed = ",".join(map(str, range(2, 20)))  # the first one says its sizes, the second shows that it can be played
    env = Hosted(f"{EXAMPLES}:Numbered", f"folder={tmp_path / 'made'} playing={doomed}", patience=3)
    with pytest.raises(RunError, match=r"failed 3 times in a row.*died \(signal 9\).*emc resume"):
        start(config(env), tmp_path / "runs")
    (path,) = (tmp_path / "runs").glob("*/*/*")
    assert len(list(path.glob("checkpoints/[0-9]*"))) == 1
    with pytest.raises(RunError, match="failed 3 times in a row"):
        resume(path, trust=f"{EXAMPLES}:Numbered")


def test_wrong_shapes_are_blamed_on_the_environment(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"random episodes can be played: obs has shape \(2, 5\), its spec says \(2, 2\)"):
        start(config(Hosted(f"{EXAMPLES}:Misshapen", patience=1)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


class Impatient(Silent):
    """Interrupts a run once, in its middle."""

    waiting = True

    def show(self, status: Status) -> None:
        if self.waiting and status.steps >= 30:
            self.waiting = False
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    wanted = config(Hosted(f"{EXAMPLES}:Race"))
    whole = start(wanted, tmp_path / "whole")
    with pytest.raises(Interrupted) as stop:
        start(wanted, tmp_path / "half", display=Impatient())
    assert stop.value.step < 60
    half = resume(stop.value.run.path, trust=f"{EXAMPLES}:Race")
    assert (whole.path / "metrics.jsonl").read_text() == (half.path / "metrics.jsonl").read_text()
    shape = jax.eval_shape(loop_of(wanted).init)
    ours, theirs = (run.latest_checkpoint(shape).tree for run in (whole, half))
    assert bits(ours) == bits(theirs)


def test_the_loop_ends_with_the_first_iteration_that_has_enough_steps() -> None:
    with contextlib.closing(loop_of(config(Hosted(f"{EXAMPLES}:Race")))) as program:
        stepwise = program.init()
        for iteration in range(2):  # of two episodes each, which have three to six steps
            assert stepwise.env_steps < 13
            stepwise = program.advance(stepwise, iteration, 1)
        assert stepwise.env_steps >= 13
        stopped = program.advance(program.init(), 0, 6, Until(furthest=13))
    assert bits(stopped) == bits(stepwise)


def test_several_seeds_are_refused() -> None:
    many = dataclasses.replace(config(Hosted(f"{EXAMPLES}:Race")), seeds=(0, 1))
    with pytest.raises(UserError, match="one seed per run"):
        start(many, Path("nowhere"))


def test_a_strangers_manifest_imports_nothing() -> None:
    data = to_json(Hosted("somebody.elses:Code"))
    with pytest.raises(RunError, match=r"--trust somebody\.elses:Code"):
        from_json(data)
    with pytest.raises(RunError, match="--trust subprocess:Popen"):
        from_json({"type": "subprocess:Popen", "args": ["true"]})


def test_names_lead_to_hosts_and_families() -> None:
    assert make_env(f"{EXAMPLES}:Race", timeout=9.0) == Hosted(f"{EXAMPLES}:Race", timeout=9.0)
    assert (task("smac/3m").kind, task("smac/3m").fields) == (Hosted, {"source": "smac/3m"})
    with pytest.raises(UserError, match="unknown field of smac/3m 'source'"):
        make_env("smac/3m", source="smac/8m")


class OldStyle:
    """What SMAC, SMACv2 and SMAClite have in common, and where they differ."""

    def __init__(self, kind: str):
        self.kind, self.time = kind, 0
        self.n_agents, self.n_actions, self.obs_size, self.state_size = 2, 7, 3, 4
        if kind != "smaclite":
            self.get_env_info = lambda: {"n_agents": 2, "n_actions": 7, "obs_shape": 3, "state_shape": 4, "episode_limit": 5}
        self.seen: list[Any] = []

    def reset(self) -> Any:
        self.time = 0

    def step(self, actions: list[int]) -> Any:
        assert all(type(action) is int for action in actions)  # SMAClite refuses numpy's
        self.time += 1
        over = self.time >= 4
        info = {"battle_won": over}
        return (None, 1.5, over, False, info) if self.kind == "smaclite" else (1.5, over, info)

    def get_obs(self) -> list[np.ndarray]:
        return [np.full(3, self.time), np.zeros(3)]

    def get_state(self) -> np.ndarray:
        return np.full(4, self.time, np.float64)

    def get_avail_actions(self) -> list[list[float]]:
        return [[0, 1, 1, 1, 1, 1, 0], [0.0] * 7]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["smac", "smaclite"])
def test_the_pymarl_adapter_hides_the_differences(kind: str) -> None:
    env = PyMARL(OldStyle(kind), episode_limit=5)
    assert dataclasses.astuple(env.spec)[:5] == (2, 7, 3, 4, 5)
    now = env.reset(3)
    assert now.available.dtype == bool
    assert now.available[1].tolist() == [True] + [False] * 6  # somebody with no action at all may do nothing
    for step in range(1, 5):
        now = env.step(np.array([1, 0]))
        assert (now.reward, now.terminated, now.truncated) == (1.5, step == 4, False)
    assert now.won


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ({"get_ally_num_attributes": lambda: 9, "shield_bits_ally": 1, "unit_type_bits": 3}, 9),
        ({"ally_state_feat_size": 7}, 7),
        ({"shield_bits_ally": 1, "unit_type_bits": 2}, 7),
        ({}, 0),
    ],
)
def test_the_features_of_a_unit_are_counted_as_the_environment_tells(told: dict[str, Any], size: int) -> None:
    old = OldStyle("smac")
    vars(old).update(told)
    assert PyMARL(old).spec.unit_size == size
    old.get_env_info = lambda: {"unit_dim": 6, "episode_limit": 5}
    assert PyMARL(old).spec.unit_size == 6


def test_maps_of_smaclite_last_as_long_as_those_of_smac(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, **fields: Any) -> Any:
        return types.SimpleNamespace(unwrapped=OldStyle("smaclite"))

    monkeypatch.setitem(sys.modules, "smaclite", types.ModuleType("smaclite"))
    monkeypatch.setitem(sys.modules, "gymnasium", types.SimpleNamespace(make=make))
    cases = [("3s_vs_5z", ""), ("mine", ""), ("3m", "episode_limit=7")]
    limits = [make_host(f"smaclite/{name}", words).spec.episode_limit for name, words in cases]
    assert limits == [250, 120, 7]
    with pytest.raises(UserError, match="give episode_limit=N"):
        PyMARL(OldStyle("smaclite"))


def test_a_class_with_the_interface_of_pymarl_needs_no_prefix() -> None:
    assert make_env(f"{EXAMPLES}:OldGame") == Hosted(f"{EXAMPLES}:OldGame")
    env = make_host(f"{EXAMPLES}:OldGame", "limit=3 won=solved")
    assert dataclasses.astuple(env.spec)[:5] == (2, 2, 1, 1, 3)
    assert env.reset(9).state.tolist() == [9]  # it can be seeded
    assert env.step(np.array([0, 1])).won
    with pytest.raises(TypeError, match="unsupported operand"):
        env.reset(-1)  # a mistake in a reset is not taken for one that has no seed


def test_what_a_step_may_be_told_beside_actions_does_not_make_it_jax() -> None:
    assert make_env(f"{EXAMPLES}:Seeded") == Hosted(f"{EXAMPLES}:Seeded")


def test_a_seed_among_the_arguments_differs_from_worker_to_worker() -> None:
    with contextlib.closing(Workers(Hosted(f"{EXAMPLES}:Seeded", "seed=7"), 2)) as workers:
        for number in (0, 1):
            workers.reset(number, 0)
        assert [answer.state[0] for answer in workers.answers([0, 1]).values() if isinstance(answer, HostTimestep)] == [7, 8]


def test_a_game_that_breaks_off_is_a_failure_and_no_defeat() -> None:
    old = OldStyle("smac")
    old.step = lambda actions: (0, True, {})  # what SMAC answers then
    env = PyMARL(old)
    env.reset(0)
    with pytest.raises(UserError, match="lost its connection"):
        env.step(np.array([1, 0]))
    other = PyMARL(old, won="", starcraft=False)  # elsewhere nothing need be said about a victory
    other.reset(0)
    assert other.step(np.array([1, 0])).terminated


def stand_in(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> list[dict[str, Any]]:
    """Make a package that is not here; what its environments were made with."""
    made: list[dict[str, Any]] = []

    class Made(OldStyle):
        def __init__(self, **fields: Any):
            super().__init__("smac")
            if fields["map_name"] == "3n":
                raise KeyError("3n")
            made.append(fields)

    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    monkeypatch.setattr(sys.modules[module], name, Made, raising=False)
    return made


def test_smac_is_made_with_texts_where_it_wants_them_and_its_map_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in(monkeypatch, "smac.env", "StarCraft2Env")
    make_host("smac/3m", "difficulty=7 game_version=4.10 step_mul=4 replay_prefix=2026")
    assert made == [{"map_name": "3m", "difficulty": "7", "game_version": "4.10", "step_mul": 4, "replay_prefix": "2026"}]
    with pytest.raises(UserError, match="part of the environment's name: write smac/8m"):
        make_host("smac/3m", "map_name=8m")
    with pytest.raises(UserError, match=r"smac/3n cannot be made: there is no such map.*KeyError: '3n'"):
        make_host("smac/3n", "")


def test_smacv2_is_made_with_the_published_teams_of_its_races(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in(monkeypatch, "smacv2.env.starcraft2.wrapper", "StarCraftCapabilityEnvWrapper")
    make_host("smacv2/10gen_zerg", "difficulty=7")
    team = {"dist_type": "weighted_teams", "unit_types": ["zergling", "baneling", "hydralisk"], "weights": [0.45, 0.1, 0.45]}
    team |= {"exception_unit_types": ["baneling"], "observe": True}
    places = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    published = {"n_units": 5, "n_enemies": 5, "team_gen": team, "start_positions": places}
    assert made[-1]["capability_config"] == published
    assert made[-1]["difficulty"] == "7"
    assert (made[-1]["obs_own_pos"], made[-1]["use_unit_ranges"]) == (True, True)
    make_host("smacv2/10gen_terran", "n_units=10 n_enemies=11 use_unit_ranges=False")
    sizes = {name: made[-1]["capability_config"][name] for name in ("n_units", "n_enemies")}
    assert (sizes, made[-1]["use_unit_ranges"]) == ({"n_units": 10, "n_enemies": 11}, False)
    assert "n_units" not in made[-1]
    make_host("smacv2/mine", "capability_config={}")
    assert made[-1]["capability_config"] == {}
    with pytest.raises(UserError, match="Did you mean 10gen_terran"):
        make_host("smacv2/10gen_teran", "")


def test_a_time_limit_that_only_cuts_is_a_truncation() -> None:
    old = OldStyle("smac")
    old.step = lambda actions: (0.0, True, {"episode_limit": True, "battle_won": False})
    env = PyMARL(old)
    env.reset(0)
    now = env.step(np.array([1, 0]))
    assert (now.terminated, now.truncated) == (False, True)


class Discrete:
    """A choice of one among n."""

    shape = ()

    def __init__(self, n: int, start: int = 0):
        self.n, self.start = n, start


class Box:
    def __init__(self, *shape: int):
        self.shape = shape


class Dictionary:
    def __init__(self, **spaces: Any):
        self.spaces = spaces


class Zoo:
    """A parallel environment with two unequal agents, the second of which leaves early.

    As in PettingZoo, an agent's last step still shows what it observed.
    """

    def __init__(self, masks: str = "info"):
        self.possible_agents = ["a", "b"]
        self.masks = masks
        self.metadata: dict[str, Any] = {}
        self.unwrapped = self
        self.max_cycles = 4

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2 if agent == "a" else 3)

    def observation_space(self, agent: str) -> Any:
        space = Box(2) if agent == "a" else Box(1, 3)
        return space if self.masks == "info" else Dictionary(observation=space, action_mask=Box(3))

    def reset(self, seed: int) -> Any:
        self.agents, self.time = ["a", "b"], 0
        return self._obs(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, int]) -> Any:
        assert set(actions) == set(self.agents)
        self.time += 1
        acting = self.agents
        rewards = dict.fromkeys(acting, 1.0)
        ended, stopped = (dict.fromkeys(acting, self.time >= time) for time in self.ends())
        ended["b"] = self.time >= 2
        self.agents = [agent for agent in acting if not (ended[agent] or stopped[agent])]
        return self._obs(acting), rewards, ended, stopped, self._infos(acting)

    def ends(self) -> tuple[int, int]:
        """When the first agent's task is over, and when it is cut."""
        return 9, 4

    def close(self) -> None:
        pass

    def _obs(self, agents: list[str]) -> dict[str, Any]:
        table = {"a": np.full(2, 1.0 + self.time), "b": np.full((1, 3), 2.0)}
        plain = {agent: table[agent] for agent in agents}
        if self.masks == "info":
            return plain
        return {agent: {"observation": obs, "action_mask": [0, 1, 1][: self.action_space(agent).n]} for agent, obs in plain.items()}

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        return (
            {agent: {"action_mask": np.array([1, 0, 1][: self.action_space(agent).n])} for agent in agents} if self.masks == "info" else {}
        )


def moments(env: PettingZoo, steps: int = 4, action: tuple[int, int] = (0, 1)) -> list[HostTimestep]:
    """An episode."""
    return [env.reset(0), *(env.step(np.array(action)) for _ in range(steps))]


@pytest.mark.parametrize(("masks", "expected"), [("info", [1, 0, 0]), ("observation", [0, 1, 0])])
def test_the_pettingzoo_adapter_pads_sums_and_masks(masks: str, expected: list[int]) -> None:
    env = PettingZoo.around(Zoo(masks))
    assert env.spec == EnvSpec(n_agents=2, n_actions=3, obs_size=3, state_size=6, episode_limit=4, winnable=False)
    first, *rest = moments(env)
    assert first.obs.tolist() == [[1, 1, 0], [2, 2, 2]]
    assert first.available[0].astype(int).tolist() == expected
    assert [now.reward for now in rest] == [2.0, 2.0, 1.0, 1.0]
    assert [(now.terminated, now.truncated) for now in rest] == [(False, False)] * 3 + [(False, True)]
    for now in rest[1:]:  # the second agent has left
        assert now.obs[1].tolist() == [0, 0, 0]
        assert now.available[1].tolist() == [True, False, False]


def test_the_last_moment_of_a_cut_episode_is_seen() -> None:
    last = moments(PettingZoo.around(Zoo()))[-1]
    assert last.truncated
    assert last.obs.tolist() == [[5, 5, 0], [0, 0, 0]]
    assert last.available.astype(int).tolist() == [[1, 0, 0], [1, 0, 0]]


class Final(Zoo):
    """Over and cut at the same step, with an agent that stays in the list."""

    def ends(self) -> tuple[int, int]:
        return 4, 4

    def step(self, actions: dict[str, int]) -> Any:
        answer = super().step(actions)
        self.agents = self.agents or ["a"]
        return answer


def test_an_end_counts_for_more_than_a_cut_at_the_same_step() -> None:
    last = moments(PettingZoo.around(Final()))[-1]
    assert (last.terminated, last.truncated) == (True, False)
    assert not last.obs.any()


class Late(Zoo):
    """The second agent is not there at first, may do nothing later, and counts from 5; both see one of four things, from 1 on."""

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3, start=5)

    def observation_space(self, agent: str) -> Any:
        return Discrete(4, start=1)

    def reset(self, seed: int) -> Any:
        super().reset(seed)
        self.agents = ["a"]
        return {"a": 1}, {}

    def step(self, actions: dict[str, int]) -> Any:
        self.chosen = actions
        self.agents = ["a", "b"]
        nothing = {"action_mask": np.zeros(3)}
        return {"a": 2, "b": 4}, {}, {}, {}, {"a": {}, "b": nothing}


def test_absent_agents_shifted_choices_and_agents_that_may_do_nothing() -> None:
    zoo = Late()
    env = PettingZoo.around(zoo)
    assert dataclasses.astuple(env.spec)[:3] == (2, 3, 4)
    first, second = moments(env, steps=1, action=(2, 0))
    assert zoo.chosen == {"a": 7}
    assert first.obs.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert second.obs.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert second.available.astype(int).tolist() == [[1, 1, 1], [1, 0, 0]]


def test_observations_that_are_no_vector_are_refused_in_one_line() -> None:
    zoo = Zoo()
    for space, message in [(Dictionary(place=Box(2)), "without an entry called observation"), (object(), "of the kind object")]:
        zoo.observation_space = lambda agent, space=space: space
        with pytest.raises(UserError, match=message):
            PettingZoo.around(zoo)


def test_the_manifest_of_a_hosted_run_is_plain_json() -> None:
    env = Hosted(f"{EXAMPLES}:Race", "a=1")
    data = json.loads(json.dumps(to_json(config(env))))
    assert from_json(data, f"{EXAMPLES}:Race") == config(env)
