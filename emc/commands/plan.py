"""`emc plan METHOD ENV`."""

from __future__ import annotations

from emc.configuration import configured
from emc.runs.sizes import planned
from emc.training.plan import available_bytes, readable


def main(words: list[str]) -> None:
    config, _, _ = configured("plan", "Bytes of replay, memory and networks, before anything is compiled, of", words)
    needed = planned(config)
    for name in ("replay", "memory", "networks", "peak"):
        print(f"{name:<10}{readable(vars(needed)[name]):>12}{'  (estimate)' if name == 'peak' else ''}")
    if (free := available_bytes()) is not None:
        advice = "it does not fit: lower --replay-episodes, --batch-episodes, --memory.capacity or --seeds"
        print(f"{'free':<10}{readable(free):>12}{'' if needed.peak <= free else f'  {advice}'}")
