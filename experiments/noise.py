"""EMC's curiosity is not drawn to noisy rewards, that from TD errors is (appendix, design choice; four methods on VDN).

An area of the gridworld pays Gaussian noise. EMC-VDN should be best at every level of it, EMC-Ind better than EMC-TD, VDN never solve the
task; at the largest level EMC-Ind and EMC-TD should spend their time in the noisy area, EMC-TD longer than VDN, and EMC-VDN reach the
goals. The paper lists 0, 0.0001, 0.01 and 0.25, read here as variances: standard deviations of 0, 0.01, 0.1 and 0.5.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_areas
from emc.claims.judgement import ahead, all_of, along_the_way, fails, wins
from emc.claims.places import time_in

LEVELS = ("0", "0.01", "0.1", "0.5")


def panel(noise: str, seeds: int, steps: int) -> Panel:
    """The four methods at one level of noise."""
    arms = (
        Arm(f"emc-vdn gridworld --env.noisy-reward {noise}"),
        Arm(f"emc-ind gridworld --mixer vdn --env.noisy-reward {noise}"),
        Arm(f"emc-td gridworld --mixer vdn --env.noisy-reward {noise}"),
        Arm(f"vdn gridworld --env.noisy-reward {noise}"),
    )
    return Panel(f"σ = {noise}", arms, steps, tuple(range(1, seeds + 1)))


def at_every_level(judge, *words, **options):
    """The same at every level of noise."""
    return all_of(*(judge(f"σ = {noise}", *words, **options) for noise in LEVELS))


MOST = f"σ = {LEVELS[-1]}"
CLAIM = Claim(
    title="Gridworld with a noisy area: curiosity about values keeps out of it",
    section="appendix",
    small=tuple(panel(noise, 3, 200_000) for noise in (LEVELS[0], LEVELS[-1])),
    paper=tuple(panel(noise, 6, 505_000) for noise in LEVELS),
    statements=(
        Statement(
            "EMC-VDN is best at every level of noise", at_every_level(ahead, "emc-vdn", "emc-ind", "emc-td", "vdn", measure=along_the_way)
        ),
        Statement("EMC-Ind is better than EMC-TD", at_every_level(ahead, "emc-ind", "emc-td", measure=along_the_way)),
        Statement("At the largest level EMC-Ind and EMC-TD fail", fails(MOST, "emc-ind", "emc-td")),
        Statement("At the largest level EMC-VDN still wins", wins(MOST, "emc-vdn")),
        Statement("VDN never solves the task", at_every_level(fails, "vdn")),
        Statement(
            "At the largest level EMC-TD stays in the noisy area longer than VDN",
            ahead(MOST, "emc-td", "vdn", measure=time_in("noisy area")),
        ),
        Statement(
            "At the largest level EMC-Ind and EMC-TD stay in the noisy area longer than EMC-VDN",
            all_of(*(ahead(MOST, other, "emc-vdn", measure=time_in("noisy area")) for other in ("emc-ind", "emc-td"))),
        ),
        Statement(
            "At the largest level EMC-VDN spends more time around the goals than the others",
            ahead(MOST, "emc-vdn", "emc-ind", "emc-td", "vdn", measure=time_in("around the goals")),
        ),
    ),
    figures=lambda evidence, theme: plot_areas(evidence, MOST, theme),
)
