"""The weight λ of the memory loss matters little between 0.01 and 0.1, and hurts when it is large (appendix; 0.001, 0.01, 0.1, 0.5).

On 3s5z_vs_3s6z, 2s3z and 3s_vs_5z; λ = 0.5 should do worse on 3s_vs_5z. On this package's own maps, not in the game; the small budget has
3m.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_memory
from emc.claims.judgement import ahead, all_of, along_the_way, comparable

WEIGHTS = ("0.001", "0.01", "0.1", "0.5")
MAPS = ("3s5z_vs_3s6z", "2s3z", "3s_vs_5z")
STEPS = {name: 5_000_000 if name in ("corridor", "3s5z_vs_3s6z", "6h_vs_8z") else 2_000_000 for name in MAPS}
MIDDLE, ENDS = ("λ = 0.01", "λ = 0.1"), ("λ = 0.001", "λ = 0.5")


def panel(name: str, seeds: int, steps: int) -> Panel:
    """EMC with four weights on one map."""
    arms = tuple(
        Arm(f"emc-qplex {name} --preset starcraft --memory episodic --memory.weight {weight}", f"λ = {weight}") for weight in WEIGHTS
    )
    return Panel(name, arms, steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Battles: how much the weight of the memory matters",
    section="appendix",
    small=(panel("3m", 3, 100_000),),
    paper=tuple(panel(name, 5, STEPS[name]) for name in MAPS),
    statements=(
        *(
            Statement(
                f"{name}: λ = 0.01 and 0.1 are no worse than 0.001 and 0.5",
                all_of(*(comparable(name, middle, *ENDS) for middle in MIDDLE)),
                beyond=name not in MAPS,
            )
            for name in ("3m", *MAPS)
        ),
        Statement(
            "3s_vs_5z: λ = 0.5 does worse", all_of(*(ahead("3s_vs_5z", middle, "λ = 0.5", measure=along_the_way) for middle in MIDDLE))
        ),
    ),
    figures=plot_memory,
)
