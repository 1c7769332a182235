"""One greedy episode as an animated GIF: how the agents act once they have learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, UInt8

from emc.envs.base import Drawable, Environment, ShowsVision
from emc.errors import UserError
from emc.files import explained, written_whole
from emc.parts import Actors
from emc.policies.exploration import act_greedily
from emc.report.figures import LIGHT, new_figure, pixels
from emc.types import Timestep

EPISODE_MILLISECONDS = 10_000  # about, whatever the episode's length, and then its last frame
LAST_FRAME_MILLISECONDS = 2_000
FRAME_MILLISECONDS = (20, 1_000)  # at least, which is what browsers can show, and at most
PIXELS = 512  # along each side
PALETTE_FRAMES = 8  # whose colours all frames are drawn with, about


@dataclasses.dataclass(frozen=True)
class Moment:
    """What a frame shows."""

    world: PyTree  # of numpy arrays
    episode_return: float  # so far
    over: bool
    won: bool


def record(env: Environment, actors: Actors, key: PRNGKeyArray) -> list[Moment]:
    """Play one greedy episode; its first moment is the one before the first action."""

    spec, policy = env.spec, actors.policy

    @jax.jit
    def begin(env: Environment, actors: Actors, key: PRNGKeyArray) -> tuple[PyTree, Timestep, PyTree]:
        reset_key, begin_key = jax.random.split(key)
        world, now = env.reset(reset_key)
        return world, now, policy.begin(actors.net, actors.state, now.state, begin_key, spec)

    @jax.jit
    def step(
        env: Environment, actors: Actors, world: PyTree, now: Timestep, carry: PyTree, previous: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[PyTree, Timestep, PyTree, Int[Array, " N"]]:
        world_key, act_key = jax.random.split(key)
        carry, action = act_greedily(actors, carry, now.obs, now.available, previous, act_key)
        return *env.step(world, action, world_key), carry, action

    reset_key, *step_keys = jax.random.split(key, spec.episode_limit + 1)
    world, now, carry = begin(env, actors, reset_key)
    previous = jnp.full(spec.n_agents, -1)
    moments, total = [Moment(jax.device_get(world), 0.0, over=False, won=False)], 0.0
    for step_key in step_keys:
        world, now, carry, previous = step(env, actors, world, now, carry, previous, step_key)
        total += float(now.reward)
        over = bool(now.terminated | now.truncated)
        moments.append(Moment(jax.device_get(world), total, over, bool(now.won)))
        if over:
            break
    return moments


def pace(steps: int) -> tuple[int, int]:
    """Every how many steps of an episode are shown, and for how many milliseconds, of which a GIF knows tens."""
    least, most = FRAME_MILLISECONDS
    every = max(1, -(-steps * least // EPISODE_MILLISECONDS))
    shown = -(-steps // every)
    return every, min(max(EPISODE_MILLISECONDS // max(shown, 1) // 10 * 10, least), most)


def animate(env: Drawable, moments: Sequence[Moment], path: Path, vision: int | None = None, size: int = PIXELS) -> None:
    """Write an episode as a GIF that repeats, `vision` through the eyes of one agent; the file appears whole or not at all."""
    from PIL import Image

    every, milliseconds = pace(len(moments) - 1)
    numbers = [*range(0, len(moments) - 1, every), len(moments) - 1]
    frames = [Image.fromarray(frame) for frame in _frames(env, [(number, moments[number]) for number in numbers], vision, size)]
    # One palette for all frames, so that nothing flickers; from several, since shots and explosions come and go.
    sample = frames[:: max(1, len(frames) // PALETTE_FRAMES)]
    strip = Image.new("RGB", (len(sample) * size, size))
    for number, frame in enumerate(sample):
        strip.paste(frame, (number * size, 0))
    palette = strip.quantize(64, dither=Image.Dither.NONE)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [milliseconds] * len(rest) + [LAST_FRAME_MILLISECONDS]
    with explained(path), written_whole(path) as beside:
        first.save(beside, "gif", save_all=True, append_images=rest, duration=durations, loop=0, optimize=True)


def _frames(
    env: Drawable, moments: Sequence[tuple[int, Moment]], vision: int | None, size: int
) -> Generator[UInt8[np.ndarray, "rows columns 3"]]:
    figure, (axes,) = new_figure(PIXELS / 128, PIXELS / 128, 1, 1, LIGHT)
    figure.set_dpi(128 * size / PIXELS)
    figure.set_layout_engine("none")
    axes.set_position((0.01, 0.01, 0.98, 0.9))
    caption: dict[str, Any] = {"transform": figure.transFigure, "va": "center", "fontsize": 12, "color": LIGHT.ink}
    for step, moment in moments:
        axes.clear()
        env.draw(axes, moment.world)
        if vision is not None:
            _with_vision(env, vision).draw_vision(axes, moment.world, vision)
        axes.text(0.04, 0.955, f"step {step}", ha="left", **caption)
        ending = "" if not moment.over else "won" if moment.won else "lost" if env.spec.winnable else "the end"
        axes.text(0.5, 0.955, ending, ha="center", fontweight="bold", **caption)
        axes.text(0.96, 0.955, f"return {moment.episode_return:.4g}", ha="right", **caption)
        yield pixels(figure)


def _with_vision(env: Drawable, agent: int) -> ShowsVision:
    if not isinstance(env, ShowsVision):
        raise UserError("this environment cannot show what one agent sees. Give it the method draw_vision of emc.envs.base")
    if not 0 <= agent < env.spec.n_agents:
        raise UserError(f"there is no agent {agent}: they are numbered from 0 to {env.spec.n_agents - 1}")
    return env
