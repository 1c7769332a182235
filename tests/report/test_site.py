"""Finding runs below a directory, and serving the page about them to this machine only."""

from __future__ import annotations

import functools
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from emc.cli import main
from emc.errors import UserError
from emc.report.records import summary
from emc.report.site import Site, best_first
from emc.report.watch import Watch
from emc.runs import RunDirectory
from tests.report.fabricate import new_run, rewrite_manifest, win_rates

ROOT = Path(__file__).parents[2]


def test_runs_are_found_at_any_depth_and_only_once(tmp_path: Path) -> None:
    runs = [new_run(tmp_path / "a", seeds=(0,)), new_run(tmp_path / "b" / "c", seeds=(1,))]
    (runs[0].path / "checkpoints" / "1").mkdir(parents=True)
    (runs[0].path / "checkpoints" / "1" / "manifest.json").write_text("{}")  # not a run
    (tmp_path / "b" / ".hidden").mkdir()
    (tmp_path / "b" / ".hidden" / "manifest.json").write_text("{}")
    site = Site([tmp_path, tmp_path / "a", runs[1].path])
    assert [run.path for run in site.runs()] == [run.path for run in runs]
    assert site.problems == []


def test_a_damaged_run_among_others_is_left_out_and_named(tmp_path: Path) -> None:
    good, torn, odd = (new_run(tmp_path, win_rates(0, {30: 0.5}), seeds=(seed,)) for seed in range(3))
    (torn.path / "manifest.json").write_text("{")
    (odd.path / "metrics.jsonl").write_text('{"kind": "eval"}\n')
    site = Site([tmp_path])
    assert [run.path for run in site.runs()] == [good.path]
    assert len(site.problems) == 2
    assert any(str(torn.path) in problem for problem in site.problems)
    assert any("metrics.jsonl, line 1" in problem for problem in site.problems)
    with pytest.raises(UserError, match="damaged"):  # named, it must be readable
        Site([torn.path]).runs()
    with pytest.raises(UserError, match="no such directory"):
        Site([tmp_path / "nowhere"]).runs()


HUGE = "9" * 400
TRAIN = '{"kind": "train", "seed": 0, "steps": 10, "episodes": 1, "loss": 0.5}'
EVAL = '{"kind": "eval", "seed": 0, "steps": 10, "return": [1.0, "NaN"], "won": [true, false]}'


@pytest.mark.parametrize(
    "line",
    [
        *(TRAIN.replace("0.5", wrong) for wrong in ("null", '"x"', "[1]", "{}", HUGE, "1e200")),
        *(TRAIN.replace('"episodes": 1', f'"episodes": {wrong}') for wrong in ('"many"', "1.5", "true", "-1", HUGE)),
        *(TRAIN.replace('"steps": 10', f'"steps": {wrong}') for wrong in ('"NaN"', "1.5", "true", "-1", HUGE)),
        *(EVAL.replace('[1.0, "NaN"]', wrong) for wrong in ('["x"]', "[null]", "[[1], [1, 2]]", "[[1]]", "[]", "1", f"[{HUGE}]", "{}")),
        *(EVAL.replace("[true, false]", wrong) for wrong in ('["x"]', "[null]", "[[true]]", "[]", "true")),
        TRAIN.replace('"seed": 0', f'"seed": {HUGE}'),
        TRAIN.replace("10", "5"),  # steps never become fewer
    ],
)
def test_a_line_with_anything_but_numbers_leaves_out_its_run(tmp_path: Path, line: str) -> None:
    good, odd = (new_run(tmp_path, win_rates(seed, {30: 0.5}), seeds=(seed,)) for seed in (1, 0))
    (odd.path / "metrics.jsonl").write_text(f"{TRAIN}\n{EVAL}\n{line}\n")
    site = Site([tmp_path])
    assert [run.path for run in site.runs()] == [good.path]
    assert site.problems == [f"{odd.path / 'metrics.jsonl'}, line 3: not a line that emc writes. Remove that line to see the rest."]
    (odd.path / "metrics.jsonl").write_text(f"{TRAIN}\n{EVAL}\n")
    assert len(site.runs()) == 2


def test_numbers_beside_the_metrics_that_are_none_are_unknown(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.5}))
    (run.path / "speed.jsonl").write_text(f'{{"steps": 1, "seconds": 4.0, "steps_since_start": {HUGE}}}\n')
    (run.path / "odd.json").symlink_to(tmp_path / "nowhere")
    rewrite_manifest(run, config=run.manifest["config"] | {"budget": {"steps": int(HUGE)}})
    new_run(tmp_path, win_rates(1, {30: 0.5}), seeds=(1,))
    site = Site([tmp_path])
    found = site.runs()
    assert "wins 50%" in site.page(found)
    known = next(summary(own, winnable=True) for own in found if own.path == run.path)
    assert (known.speed, known.asked) == (None, None)


def test_a_run_that_goes_on_is_read_again(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.0}))
    site = Site([tmp_path])
    before = site.runs()
    assert site.signature(before) == site.signature(site.runs())
    assert site.runs()[0] is before[0]  # not opened again
    first = site.page(before)
    with run:
        run.append(win_rates(0, {1000: 0.7}))
    assert site.signature(site.runs()) != site.signature([])
    assert "wins 35%" in site.page(site.runs())
    assert "wins 35%" not in first


def test_the_best_of_each_method_comes_first(tmp_path: Path) -> None:
    def run(method_name: str, seed: int, rate: float) -> RunDirectory:
        return new_run(tmp_path, win_rates(seed, {30: rate}), method_name=method_name, seeds=(seed,))

    poor, good, other, empty = run("vdn", 0, 0.1), run("vdn", 1, 0.9), run("qmix", 0, 0.5), new_run(tmp_path, method_name="vdn", seeds=(2,))
    assert best_first([poor, good, other, empty]) == [good, other, poor, empty]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """A served page about an empty directory, which the test may fill and look at."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    said: list[str] = []
    served, ended = Watch(Site([tmp_path / "runs"]), 0, say=said.append), threading.Event()
    thread = threading.Thread(target=served.run, args=(ended,))
    thread.start()
    yield served
    ended.set()
    thread.join()


def get(watch: Watch, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    port = int(watch.address.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1800)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def test_the_server_knows_its_page_and_nothing_else(watch: Watch) -> None:
    status, page = get(watch, "/")
    assert status == 200
    assert "No runs yet" in page
    assert "connect-src 'self'" in page
    assert get(watch, "/version") == (200, watch.version)
    assert f'data-version="{watch.version}"' in page
    for path in ("/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/runs/", "/?", "/version/"):
        status, content = get(watch, path)
        assert status == 404
        assert "secret" not in content
    assert get(watch, "/", method="POST")[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80"])
def test_the_server_answers_to_its_own_name_only(watch: Watch, host: str) -> None:
    for path in ("/", "/version"):
        status, content = get(watch, path, host)
        assert status == 421
        assert "No runs yet" not in content
        assert watch.version not in content


def test_the_server_listens_on_loopback_only(watch: Watch) -> None:
    assert watch.address.startswith("http://127.0.0.1:")
    port = int(watch.address.rstrip("/").rpartition(":")[2])
    assert get(watch, "/version", f"localhost:{port}")[0] == 200
    with socket.socket() as everywhere:  # what any other address of this machine reaches, here the second one of its loopback
        everywhere.bind(("", 0))
        everywhere.listen()
        reached = connects("127.0.0.2", everywhere.getsockname()[1])
    assert watch.bound == "127.0.0.1"
    if reached:  # elsewhere than on Linux there is only one such address
        assert not connects("127.0.0.2", port)
    assert connects("127.0.0.1", port)


def connects(address: str, port: int) -> bool:
    with socket.socket() as other:
        other.settimeout(1800)
        return other.connect_ex((address, port)) == 0


def wait_for_answers() -> None:
    while any("process_request_thread" in thread.name for thread in threading.enumerate()):
        time.sleep(0.02)


def test_a_client_that_leaves_is_not_worth_a_word(watch: Watch, capfd: pytest.CaptureFixture[str]) -> None:
    watch.page = b"x" * 2**26  # more than a connection holds, so that the server is still answering
    port = int(watch.address.rstrip("/").rpartition(":")[2])
    for asked in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port, b"GET / HT"):
        client = socket.create_connection(("127.0.0.1", port), timeout=1800)
        client.sendall(asked)
        assert not asked.endswith(b"\n") or client.recv(1)  # it has begun
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leave at once, without a word
        client.close()
    wait_for_answers()
    assert capfd.readouterr().err == ""
    assert get(watch, "/version")[0] == 200


@pytest.mark.parametrize(("idle", "longest"), [(0.2, 3600.0), (3600.0, 0.2)])
def test_a_connection_ends(idle: float, longest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emc.report.watch.IDLE_SECONDS", idle)
    monkeypatch.setattr("emc.report.watch.LONGEST_SECONDS", longest)
    served, ended = Watch(Site([tmp_path]), 0), threading.Event()
    thread = threading.Thread(target=served.run, args=(ended,))
    thread.start()
    port = int(served.address.rstrip("/").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=1800) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost:")  # and nothing more
        assert client.recv(1) == b""
    ended.set()
    thread.join()


def test_a_page_is_made_anew_only_when_runs_have_changed(tmp_path: Path) -> None:
    run, said = new_run(tmp_path, win_rates(0, {30: 0.0})), list[str]()
    watch = Watch(Site([tmp_path]), 0, say=said.append)
    page, version = watch.page, watch.version
    watch.look()
    assert watch.page is page
    with run:
        run.append(win_rates(0, {1000: 0.7}))
    watch.look()
    assert watch.version != version
    assert b"wins 35%" in watch.page
    page = watch.page
    (run.path / "metrics.jsonl").write_text("damaged\n")
    watch.look()
    watch.look()
    assert len(said) == 1  # told once
    assert "metrics.jsonl" in said[0]
    for rate in (0.1, 0.2):
        with (other := new_run(tmp_path, win_rates(0, {30: rate}))):
            (other.path / "maps.jsonl").write_text("damaged\n")
        watch.look()
        watch.look()
    assert len(said) == 3  # each of them once, though the page was made twice


def test_an_episode_that_was_rendered_is_on_the_page(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.0}))
    watch = Watch(Site([tmp_path]), 0)
    assert b"no checkpoint was kept" in watch.page
    (run.path / "checkpoints" / f"{30:012d}").mkdir(parents=True)
    watch.look()
    assert f"No episode yet: emc render {run.path}".encode() in watch.page
    pages = [watch.page]
    for colours in (("red", "blue"), ("blue", "green")):
        frames = [Image.new("RGB", (8, 8), colour) for colour in colours]
        frames[0].save(run.path / "episode.gif", save_all=True, append_images=frames[1:])
        watch.look()
        assert b"data:image/gif;base64," in watch.page
        pages.append(watch.page)
    assert len({*pages}) == 3


def test_watching_goes_on_when_a_file_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_run(tmp_path, win_rates(0, {30: 0.0}))
    said = list[str]()
    watch = Watch(Site([tmp_path]), 0, say=said.append)
    page = watch.page

    def refuse(runs: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(watch.site, "signature", refuse)
    watch.look()
    watch.look()
    assert watch.page is page
    assert said == ["not yours"]


def test_a_port_that_is_taken_or_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    new_run(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        for port in (other.getsockname()[1], 70_000):
            with pytest.raises(UserError, match=rf"cannot serve on port {port}: .*--port"):
                Watch(Site([tmp_path / "not looked at yet"]), port)


def test_a_version_is_the_same_for_the_same_runs(tmp_path: Path) -> None:
    new_run(tmp_path, win_rates(0, {30: 0.5}))
    assert Watch(Site([tmp_path]), 0).version == Watch(Site([tmp_path]), 0).version
    assert json.loads(Watch(Site([tmp_path]), 0).page.decode().partition('id="data">')[2].partition("</script>")[0])["runs"]


def test_the_command_writes_one_page_about_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [new_run(tmp_path, win_rates(seed, {30: 0.5}), seeds=(seed,)) for seed in range(2)]
    (runs[1].path / "manifest.json").write_text("{")
    main(["report", str(tmp_path)])
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'report.html'}\n"
    assert "no animation: there is no checkpoint to play from" in err
    assert f"left out: {runs[1].path}" in err
    assert str(runs[0].manifest["id"]) in (tmp_path / "report.html").read_text()


def test_the_directory_runs_is_reported_on_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["report"], ["report", "--watch"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "RUN expected" in capsys.readouterr().err
    new_run(tmp_path / "runs", win_rates(0, {30: 0.5}))
    main(["report", "--episodes", "0"])
    assert capsys.readouterr().out == f"{Path('runs') / 'report.html'}\n"


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    new_run(tmp_path, win_rates(0, {30: 0.5}))
    command = [sys.executable, "-c", "from emc.cli import main; main()", "report", str(tmp_path), "--watch", "--port", "0"]
    # Whoever runs the tests in the background may ignore the signal, and children inherit that.
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as served:
        try:
            assert served.stdout is not None
            assert served.stderr is not None
            line = served.stdout.readline()
            assert line.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(line.split()[0], timeout=1800) as answer:
                assert "wins 50%" in answer.read().decode()
            served.send_signal(signal.SIGINT)
            assert served.wait(1800) == 0
            assert served.stderr.read() == ""
        finally:
            served.kill()  # one that does not end would hold up all other tests
    assert not (tmp_path / "report.html").exists()
