"""The command as a new user meets it: one clear line for a mistake, files where they are promised."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import emc
from emc import configuration
from emc.cli import COMMANDS, main
from emc.commands.common import prepare_jax
from emc.configuration import configure, configured
from emc.envs.registry import preset_for, task, task_of

SMALL = ["--policy.hidden", "8", "--batch-episodes", "4", "--replay-episodes", "24", "--test-episodes", "3"]


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    return int(stop.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("trian vdn gridworld", "Did you mean train?"),
        ("train emc-vdm gridworld", "Did you mean emc-vdn?"),
        ("train vdn gridworl", "Did you mean gridworld?"),
        ("train vdn", "METHOD ENV expected"),
        ("train vdn gridworld --gama 0.5", "Perhaps you meant --gamma?"),
        ("train vdn gridworld --gamma half", "could not convert string to float"),
        ("train vdn gridworld --gamma nan", "must lie between 0 and 1"),
        ("train vdn gridworld --gamma -1", "must lie between 0 and 1"),
        ("train vdn gridworld --learning-rate inf", "must be a number above 0"),
        ("train vdn gridworld --epsilon.steps -5", "of at least 1"),
        ("train vdn gridworld --env.penalty nan", "penalty=nan"),
        ("train vdn gridworld --env.slip 2", "from 0 to 1"),
        ("train vdn gridworld --env.vision far", "reversed"),
        ("train vdn gridworld --batch-episodes 64 --replay-episodes 32", "the first update could never happen"),
        ("train vdn gridworld --parallel-envs 7", "must divide replay_episodes"),
        ("train vdn gridworld --steps 0", "at least 1"),
        ("train vdn gridworld --seeds 0", "at least 1"),
        ("train vdn gridworld --memory episodc", "Did you mean episodic?"),
        ("train vdn gridworld --preset papr", "Did you mean paper?"),
        ("train qmix gridworld --mixer qplex-attention", "use --mixer qplex"),
        ("train rode one-step-game", "RODE needs an environment that says which actions are always allowed"),
        ("train rode gridworld", "choose --policy.clusters 2 or so"),
        ("train ow-qmix gridworld --loss.alpha 2", "from 0 to 1"),
        ("train qmix gridworld --optimiser adm", "Did you mean adam?"),
        ("train qmix-tuned gridworld --parallel-envs 3 --replay-episodes 5001", "make one a multiple of the other"),
        ("plan qmix-tuned gridworld --parallel-envs 3 --replay-episodes 5001", "make one a multiple of the other"),
        ("plan vdn gridworld --parallel-envs 3", "parallel_envs=3 must divide replay_episodes=5000"),
        ("train vdn gridworld --log-every -1", "at least 0"),
        ("train vdn gridworld --checkpoint-minutes -1", "at least 0"),
        ("train vdn gridworld --replay-episodes 400000000", "lower --replay-episodes"),
        ("resume nowhere", "no such directory"),
        ("report", "RUN expected"),
        ("report nowhere", "no such directory"),
        ("report .", "no runs in there"),
        ("report . --episodes -1", "at least 0"),
        ("report . --port 80", "belongs to --watch"),
        ("report . --watch --out page.html", "writes no file"),
        ("report nowhere --watch", "no such directory"),
        ("report . --watch --port http", "whole number"),
        ("report . --wach", "Perhaps you meant --watch?"),
        ("train vdn gridworld --memory.weight 1", "vdn has no memory whose fields could be set: add one first with --memory {episodic,"),
        ("train vdn gridworld --steps", "Missing value for argument '--steps'. Add --help"),
        ("train vdn gridworld --steps 1e5", "'1e5' is not a whole number"),
        ("evaluate nowhere --episodes 100001", "the most is 100000"),
        ("evaluate nowhere --episodes 0", "at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_writes_nothing(
    words: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, line = said(words.split(), capsys)
    assert code == 2
    assert expected in line
    assert line.count("\n") == 1
    assert "Traceback" not in line
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    code, line = said(["train", "vdn", "gridworld", "--runs", str(tmp_path / "file" / "runs")], capsys)
    assert code == 2
    assert line.count("\n") == 1


def test_help_teaches_every_field_and_where_its_default_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "emc-vdn", "gridworld", "--help"])
    text = capsys.readouterr().out
    assert stop.value.code in (0, None)
    for part in ("--gamma", "--curiosity.target-scale", "released code; 1 in the paper", "--env.penalty", "--seeds", "--replay"):
        assert part in text


def test_methods_and_environments_are_listed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    main(["methods"])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert list(lines) == list(emc.METHODS)
    for number in ("gamma=0.99", "optimiser=Adam", "learning_rate=0.001", "gradient_clip=20.0", "batch_episodes=128"):
        assert number in lines["qmix-tuned"]
        assert number.split("=")[0] not in lines["vdn"]
    main(["envs"])
    listed, other = capsys.readouterr().out.split("\n\n")
    assert [line.split()[0] for line in listed.splitlines()] == list(emc.TASKS)
    assert "smax/MAP" in other


def test_the_line_that_reproduces_qplex_on_the_one_step_game_means_its_own_releases_mixer() -> None:

    from emc.mixers import QPLEX
    from emc.schedules import Epsilon

    page = (Path(__file__).parents[1] / "experiments" / "one_step_game.md").read_text()
    (line,) = [line.split() for line in page.splitlines() if line.strip().startswith("emc train qplex")]
    config, where, _ = configured("train", "Train", line[2:])
    assert config.method.mixer == QPLEX(kernels=10, layers=3)
    assert config.method.epsilon == Epsilon(finish=1.0)
    assert (config.budget.steps, where.seeds) == (5_000, 3)


def test_a_plan_adds_up_and_grows_with_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    from emc.training.loop import Budget, init
    from emc.training.plan import plan
    from emc.types import bytes_of

    words = ["vdn", "gridworld", "--memory", "episodic"]
    config = configure(words)
    method, env = config.method, config.env
    one, three = plan(method, env, Budget(), 1), plan(method, env, Budget(), 3)
    state = init(method, env.spec, 0)
    assert one.replay == bytes_of(state.replay)
    assert one.memory == bytes_of(state.learner.memory)
    assert one.peak > one.replay + one.memory + one.networks
    assert three.peak == 3 * one.peak
    main(["plan", *words])
    assert capsys.readouterr().out.startswith("replay")
    main(["plan", *words, "--replay-episodes", "400000000"])
    assert "it does not fit: lower --replay-episodes" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_can_be_trained_evaluated_rendered_reported_and_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def emc_command(*words: str) -> str:
        main([*words])
        return capsys.readouterr().out

    told = emc_command("train", "emc-qmix", "gridworld", "--steps", "400", "--evaluate-every", "200", "--runs", str(tmp_path), *SMALL)
    (run,) = tmp_path.glob("*/*/*")
    assert f"emc report {run}" in told
    assert "win rate" in emc_command("evaluate", str(run), "--episodes", "5")
    assert "episodes 300, " in emc_command("evaluate", str(run), "--episodes", "300")
    assert emc_command("render", str(run)).strip() == str(run / "episode.gif")
    assert (run / "episode.gif").read_bytes()[:3] == b"GIF"
    page = emc_command("report", str(run)).strip()
    assert Path(page).read_text().count("data:image") >= 3

    policy = emc.load(run)
    assert policy.step >= 400
    assert policy.warnings == ()
    env = emc.make_env("gridworld")
    obs, available = np.zeros((2, env.spec.obs_size)), np.zeros((2, 5), bool)
    available[:, 3] = True
    assert policy.act(obs, available).tolist() == [3, 3]
    with pytest.raises(emc.UserError, match="expects"):
        policy.act(obs[:, :3], available)


def test_an_environment_with_other_fields_is_still_of_its_task() -> None:
    assert task_of(emc.make_env("predator-prey", punishment=-1.0)) is emc.TASKS["predator-prey"]
    assert task_of(emc.make_env("2s3z")) is emc.TASKS["2s3z"]
    assert task_of(emc.make_env("tests.envs.host_examples:Race")) is None


@pytest.mark.parametrize(("own", "expected"), [({}, 0.5), ({"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "7"}, 3.0)])
def test_what_the_user_says_of_the_cache_of_programs_wins(own: dict[str, str], expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    for variable, value in own.items():
        monkeypatch.setenv(variable, value)
    jax.config.update(name, 3.0)  # as JAX has read it, earlier, from where the user said it
    try:
        prepare_jax()
        assert getattr(jax.config, name) == expected
    finally:
        jax.config.update(name, before)


@pytest.mark.parametrize("command", ["resume", "evaluate", "render", "report", "export", "sweep", "reproduce"])
def test_every_command_that_reads_runs_takes_trust_several_times_and_says_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "--trust" in shown
    assert "repeatable" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_itself_with_an_example_without_its_positionals(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code in (0, None)
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: emc {command}")
    assert f"\n  emc {command}" in shown.partition("Example")[2]


@pytest.mark.parametrize(
    "words",
    [
        ["--loss.no-double-q"],
        ["--loss.double-q", "False"],
        ["--loss.double-q=False"],
    ],
)
def test_a_switch_is_a_flag_and_may_also_be_given_a_value(words: list[str]) -> None:
    assert vars(configure(["vdn", "gridworld", *words]).method.loss)["double_q"] is False
    assert vars(configure(["vdn", "gridworld", "--loss.double-q"]).method.loss)["double_q"] is True


@pytest.mark.parametrize(
    ("words", "preset", "why"),
    [
        ("emc-qplex 2s3z", "starcraft", "the one of 2s3z"),
        ("emc-qplex gridworld", "released", "the one of gridworld"),
        ("emc-qplex 2s3z --preset released", "released", "as asked for"),
        ("emc-qplex tests.envs.host_examples:Race", "released", "the one of tests.envs.host_examples:Race"),
    ],
)
def test_an_environment_names_its_preset_and_the_flag_overrides_it(words: str, preset: str, why: str) -> None:
    config, _, whose = configured("train", "Train", words.split())
    method, env, *_ = words.split()
    assert (whose.name, whose.why) == (preset, why)
    assert config.method == emc.make_method(method, preset, env)
    if preset == "starcraft":
        assert (config.method.gamma, type(config.method.memory).__name__) == (0.99, "EpisodicMemory")


@pytest.mark.parametrize("name", ["smac/2s3z", "smacv2/protoss", "smaclite/3m", "smax/3m"])
def test_battles_of_other_packages_have_the_constants_of_starcraft(name: str) -> None:
    assert task(name).preset == preset_for(name) == "starcraft"
    assert preset_for("lbf/8x8-2p-2f-coop") == preset_for("jaxmarl/MPE_simple_v3") == "released"


def test_the_first_line_and_the_manifest_say_which_preset_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--steps", "30", "--evaluate-every", "30", *SMALL]
    main(["train", "vdn", "gridworld", *small, "--runs", str(tmp_path), "--preset", "paper"])
    assert capsys.readouterr().out.splitlines()[0].startswith("vdn on gridworld, preset paper (as asked for), seed 0")
    (run,) = tmp_path.glob("*/*/*")
    assert json.loads((run / "manifest.json").read_text())["preset"] == {"name": "paper", "why": "as asked for"}


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "--steps 7000 --seed 3 --seeds 2",
        "--steps=7000 --evaluate-every 500",
        "--runs elsewhere --test-episodes 4",
        "--steps",
        "--steps 1e5",
        "--steps 0",
        "--stops 5",
        "--seed -1",
        "--ste 5",
        "--steps 5 6",
        "-- --steps 5",
        "--epsilon.finish 0.1 --steps 5",
        "--policy.hidden 32 --replay prioritised --replay.exponent 0.25",
        "--policy.hidden=32 --optimiser.decay=0.9 --seed=3",
        "--policy.hidden 0",
        "--policy.hiden 3",
        "--policy.no-recurrent",
        "--policy.recurrent False",
        "--env.episode-limit 9 --memory episodic --memory.weight 0.5 --memory.statistic bound",
        "--env.nothing 3",
        "--gamma 0.5 --policy.hidden 8",
        "--mixer.hidden 4",
        "--epsilon.start 2",
    ],
)
@pytest.mark.parametrize("first", ["vdn gridworld", "emc-qplex 3m --preset starcraft"])
def test_what_is_parsed_quickly_means_the_same(first: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> str:
        try:
            return repr(configured("train", "Train", f"{first} {rest}".split()))
        except emc.UserError as error:
            return str(error)

    quickly = answer()
    monkeypatch.setattr(configuration, "_with_named_flags", lambda *_: None)
    assert answer() == quickly


def test_flags_of_single_parts_need_no_parser_of_a_whole_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "parse", lambda *_: pytest.fail("everything was parsed"))
    config, *_ = configured("train", "Train", ["vdn", "gridworld", "--steps", "7000", "--policy.hidden", "8", "--env.slip", "0.3"])
    assert (config.budget.steps, config.method.policy.hidden, vars(config.env)["slip"]) == (7_000, 8, 0.3)
