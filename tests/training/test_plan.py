"""How much memory a run may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from emc.envs import make_env
from emc.errors import UserError
from emc.methods import make_method
from emc.training import plan as planning
from emc.training.loop import Budget, init
from emc.training.plan import check_fits, plan
from emc.types import bytes_of


def test_a_plan_counts_the_arrays_that_are_made() -> None:
    method, env = make_method("emc-vdn"), make_env("gridworld")
    needed, state = plan(method, env, Budget(), 1), init(method, env.spec, 0)
    assert needed.replay == bytes_of(state.replay)
    assert needed.networks == bytes_of((state.learner.values, state.learner.policy, state.learner.curiosity))
    assert needed.peak > needed.replay + needed.memory + needed.networks
    assert plan(method, env, Budget(), 3).peak == 3 * needed.peak


def test_a_containers_limit_counts_and_file_caches_do_not(tmp_path: Path) -> None:
    for name, text in {"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 1\ninactive_file 500\n"}.items():
        (tmp_path / name).write_text(text)
    assert planning._container_bytes(tmp_path) == 2500
    (tmp_path / "memory.max").write_text("max")
    assert planning._container_bytes(tmp_path) is None
    assert planning._container_bytes(tmp_path / "nothing") is None


def test_what_does_not_fit_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = plan(make_method("vdn"), make_env("gridworld"), Budget(), 1)
    monkeypatch.setattr(planning, "available_bytes", lambda: needed.peak - 1)
    with pytest.raises(UserError, match="lower --replay-episodes"):
        check_fits(needed)
    monkeypatch.setattr(planning, "available_bytes", lambda: needed.peak)
    check_fits(needed)
