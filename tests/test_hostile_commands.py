"""Command lines that nobody means well with: each is one line, at once, and leaves nothing behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emc.cli import main
from emc.commands.messages import MOST_LETTERS
from emc.user_input import in_one_line

ROOT = Path(__file__).parents[1]
LONG, DIGITS, MANY = "x" * 5_000, "9" * 5_000, "9" * 20
TRAIN = ["train", "vdn", "gridworld"]


class Touchy:
    """A logger that cannot even be looked at."""

    @property
    def log(self) -> None:
        raise RuntimeError("not now")


COMMANDS = {
    "a long run to resume": (["resume", LONG], "File name too long"),
    "a long run to evaluate": (["evaluate", LONG], "File name too long"),
    "a long run to render": (["render", LONG], "File name too long"),
    "a long directory to report on": (["report", LONG], "File name too long"),
    "a long directory to watch": (["report", LONG, "--watch", "--port", "0"], "File name too long"),
    "a long directory to export": (["export", LONG], "File name too long"),
    "a long sweep": (["sweep", LONG], "File name too long"),
    "a long directory of runs": ([*TRAIN, "--runs", LONG], "File name too long"),
    "a long directory for a sweep": (["sweep", "--methods", "vdn", "--envs", "gridworld", "--runs", LONG], "File name too long"),
    "a long directory of reproductions": (["reproduce", "noise", "--draw-only", "--runs", LONG], "File name too long"),
    "a long method": (["train", LONG, "gridworld"], "unknown method"),
    "a long environment": (["train", "vdn", LONG], "unknown environment"),
    "a long module": (["check-env", f"{LONG}:Thing"], "here or among the installed ones"),
    "a long class": (["check-env", f"emc:{LONG}"], "unknown class"),
    "a long claim": (["reproduce", LONG], "unknown claim"),
    "a long command": ([LONG], "unknown command"),
    "a long flag": ([*TRAIN, f"--{LONG}", "1"], "nrecognized"),
    "a long mixer": ([*TRAIN, "--mixer", f"{LONG}:Thing"], "here or among the installed ones"),
    "a whole number of many digits": ([*TRAIN, "--env.rows", DIGITS], "rows"),
    "a number of many digits": ([*TRAIN, "--gamma", DIGITS], "gamma"),
    "many seeds": ([*TRAIN, "--seeds", DIGITS], "seeds"),
    "many steps": ([*TRAIN, "--steps", "9" * 4_000], "steps"),
    "a high map": ([*TRAIN, "--env.rows", "1048576"], "choose smaller sizes"),
    "a map that fills the memory": ([*TRAIN, "--env.rows", "2147483647"], "choose smaller sizes"),
    "long observations": ([*TRAIN, "--env.observation-noise", "2147483647"], "choose smaller sizes"),
    "long episodes": ([*TRAIN, "--env.episode-limit", "2147483647"], "choose smaller sizes"),
    "a long game": (["train", "vdn", "n-step-game", "--env.steps", "100000000"], "choose smaller sizes"),
    "a wide field": (["train", "vdn", "predator-prey", "--env.grid-size", "2000000000"], "choose smaller sizes"),
    "a memory of all numbers": (["train", "emc-wo-c", "gridworld", "--memory.capacity", "2147483647"], "choose smaller ones"),
    "the plan of such a memory": (["plan", "emc-wo-c", "gridworld", "--memory.capacity", "2147483647"], "choose smaller ones"),
    "wide networks": ([*TRAIN, "--policy.hidden", "2147483647"], "are free: lower"),
    "a large seed of tests": (["evaluate", "gridworld", "--policy", "shipped", "--seed", MANY], "--seed"),
    "a large seed of scripted play": (["evaluate", "3m", "--script", "focus-fire", "--episodes", "1", "--seed", MANY], "--seed"),
    "a seed below all": (["evaluate", "gridworld", "--policy", "shipped", "--seed", "-1"], "--seed"),
    "a large seed of a picture": (["render", "gridworld", "--policy", "shipped", "--seed", MANY], "--seed"),
    "a large seed of random play": (["suite", "--tasks", "pass", "--episodes", "2", "--seed", MANY], "--seed"),
    "the optimum of a high map": (["optimum", "gridworld", "--env.rows", "2147483647"], "choose smaller sizes"),
    "the optimum of long episodes": (["optimum", "gridworld", "--env.episode-limit", "1000000"], "is too long"),
    "the optimum of a long game": (["optimum", "n-step-game", "--env.steps", "1000000"], "is too long"),
    "the optimum of a longer game": (["optimum", "climbing", "--env.episode-limit", "2147483647"], "choose smaller sizes"),
    "players of a level beyond numbers": (["train", "vdn", "lbf/8x8-2p-2f-coop", "--env.max-player-level", "2147483647"], "lower one"),
    "a method with a line break": (["train", "v\n\x1b[31md\rn", "gridworld"], "unknown method"),
    "an environment with a line break": (["train", "vdn", "grid\nworld\u2028"], "unknown environment"),
    "a logger that is a function": ([*TRAIN, "--log", "os:system"], "os:system cannot be made"),
    "a logger that is a list": ([*TRAIN, "--log", "builtins:list"], "no logger, it has no begin and no log and no end"),
    "a logger that cannot be looked at": ([*TRAIN, "--log", f"{__name__}:Touchy"], "Touchy cannot be made (RuntimeError: not now)"),
    "a loss that leaves": ([*TRAIN, "--loss", "sys:exit"], "sys:exit cannot be made: SystemExit"),
    "many workers": (["sweep", "--methods", "vdn", "--envs", "gridworld", "--workers", "9" * 30], "at most 10000"),
    "a zero byte": ([*TRAIN, "--runs", "a\x00b"], "a name has a zero byte in it"),
    "a run with a line break": (["resume", "a\nb\x00"], "a b\\x00: no such directory"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_command_line_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = COMMANDS[name]
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr()
    assert stop.value.code == 2
    (line,) = said.err.splitlines()
    assert expected in line
    assert len(line) <= len("emc: ") + MOST_LETTERS
    assert line.isprintable()
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


SWEEPS = {
    "deep lists": ("methods = " + "[" * 5_000 + "]" * 5_000, "is not TOML"),
    "deep tables": ("[set]\n" + ".".join("a" * 5_000) + " = 1", "is not TOML"),
    "many digits": (f'methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = {DIGITS}', "is not TOML"),
    "a large file": ("#" * 2**21, "more than the 1,048,576"),
    "no text": ("\x00\x00", "is not TOML"),
    "more runs than can be counted": (
        'methods = ["vdn"]\nenvs = ["gridworld"]\n[set]\n' + "\n".join(f"a{n} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(5_000)),
        "this sweep has far too many runs",
    ),
    "a method of many lines": ('methods = ["v\\nd\\nn"]\nenvs = ["gridworld"]', "unknown method"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_hostile_sweep_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = SWEEPS[name]
    (tmp_path / "sweep.toml").write_text(content)
    assert_refused(["sweep", str(tmp_path / "sweep.toml"), "--runs", str(tmp_path / "runs")], expected, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_sweep_that_is_a_link_to_itself_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(["sweep", str(tmp_path / "loop")], "link", capsys)


MEASURED = {  # what is there where measurements are to be written, and what is said of it before anything is measured
    "nothing that is ours": (lambda path: path.write_text('{"tasks": [1]}'), "not a file that `emc suite --out` writes"),
    "tasks of another kind": (lambda path: path.write_text('{"tasks": {"climbing": 5}}'), "not a file that `emc suite --out` writes"),
    "words for numbers": (
        lambda path: path.write_text(
            '{"tasks": {"climbing": {"odds": {"episodes": "x", "wins": 0, "mean_return": 0}, "score": 1, "best_return": 1, '
            '"exact": true, "steps": null}}}'
        ),
        "not a file that `emc suite --out` writes",
    ),
    "deep lists": (lambda path: path.write_text("[" * 5_000 + "]" * 5_000), "not a file that `emc suite --out` writes"),
    "a pipe": (os.mkfifo, "a pipe or a device"),
    "a link": (lambda path: path.symlink_to(path.with_name("victim")), "is a link"),
    "a link to a device": (lambda path: path.symlink_to("/dev/full"), "is a link"),
    "a folder": (Path.mkdir, "is a folder"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices with names")
@pytest.mark.parametrize("name", MEASURED)
def test_measurements_take_the_place_of_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emc.commands.suite.known", lambda *_: pytest.fail("measured before it looked"))
    (tmp_path / "victim").write_text("mine")
    make, expected = MEASURED[name]
    make(tmp_path / "out")
    before = os.lstat(tmp_path / "out")
    assert_refused(["suite", "--tasks", "climbing", "--episodes", "2", "--out", str(tmp_path / "out")], expected, capsys)
    assert os.lstat(tmp_path / "out")[:4] == before[:4]
    assert (tmp_path / "victim").read_text() == "mine"


def test_measurements_that_cannot_be_written_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emc.commands.suite.known", lambda *_: pytest.fail("measured before it looked"))
    (tmp_path / "file").touch()
    words = ["suite", "--tasks", "climbing", "--episodes", "2", "--out"]
    assert_refused([*words, str(tmp_path / "file" / "out.json")], "cannot write to", capsys)
    assert_refused([*words, str(tmp_path / "new" / "newer" / ("x" * 300))], "cannot write to", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices with names")
def test_a_sweep_is_read_from_files_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert_refused(["sweep", str(path)], "not a file", capsys)


def assert_refused(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert len(line) <= len("emc: ") + MOST_LETTERS


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["methods"], ["--help"], ["--version"], ["train", "vdn", "gridworld", "--help"]])
def test_an_output_that_is_full_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from emc.cli import main; main()", *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert (done.returncode, done.stderr) == (
        2,
        "emc: writing failed: No space left on device. Look at that place, or choose another one\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_refusal_that_cannot_be_written_is_still_one() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", "from emc.cli import main; main()", "resume", "nowhere"], stderr=full, cwd=ROOT)
    assert done.returncode == 2


def test_an_output_takes_names_that_it_has_no_letters_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("emc.commands.methods.main", lambda words: print("é \u2014 \udcff"))
    main(["methods"])
    assert shown.buffer.getvalue() == b"\\xe9 \\u2014 \\udcff\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs streams that can be closed before a program begins")
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_stream_that_is_not_there_is_no_mistake_and_no_file_takes_its_place(closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    program = f"""
import os, sys
from emc.cli import main
main(["methods"])
print("shown")
if os.open({str(ROOT)!r}, os.O_RDONLY) > 2:
    main(["resume", "nowhere"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, preexec_fn=close)
    assert done.returncode == 2
    assert done.stdout.endswith("shown\n") == (1 not in closed)
    assert done.stderr.count("\n") == (2 not in closed)


def test_what_is_too_long_keeps_its_beginning_and_its_end() -> None:
    assert in_one_line("a\nb\tc \x1b[31m\u2028d") == "a b c \\x1b[31m d"
    short = in_one_line(f"{LONG}: no such directory. Name another one.", 300)
    assert len(short) <= 300
    assert short.startswith("xxx")
    assert short.endswith("no such directory. Name another one.")
