"""EMC's curiosity is not drawn to noisy rewards, that from TD errors is (appendix, design choice; four methods on VDN).

An area of the gridworld pays Gaussian noise. EMC-VDN should be best at every level of it, EMC-Ind better than EMC-TD, VDN never solve the
task; at the largest level EMC-Ind and EMC-TD should spend their time in the noisy area, EMC-TD longer than VDN, and EMC-VDN reach the
goals. The paper lists 0, 0.0001, 0.01 and 0.25, read here as variances: standard deviations of 0, 0.01, 0.1 and 0.5.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_areas
from emc.claims.heat_map_measures import time_in
from emc.claims.judgement import ahead, along_the_way, fails, wins

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


TITLES = tuple(f"σ = {noise}" for noise in LEVELS)
MOST = TITLES[-1]
LURED = time_in("noisy area")
CLAIM = Claim(
    title="Gridworld with a noisy area: curiosity about values keeps out of it",
    section="appendix",
    small=tuple(panel(noise, 3, 200_000) for noise in (LEVELS[0], LEVELS[-1])),
    paper=tuple(panel(noise, 6, 505_000) for noise in LEVELS),
    statements=(
        *(
            Statement(f"{title}: EMC-VDN is best", ahead(title, "emc-vdn", "emc-ind", "emc-td", "vdn", measure=along_the_way))
            for title in TITLES
        ),
        *(
            Statement(f"{title}: EMC-Ind is better than EMC-TD", ahead(title, "emc-ind", "emc-td", measure=along_the_way))
            for title in TITLES
        ),
        Statement("Without noise EMC-Ind and EMC-TD still win", wins(TITLES[0], "emc-ind", "emc-td")),
        Statement("At the largest level EMC-Ind and EMC-TD fail", fails(MOST, "emc-ind", "emc-td")),
        Statement("At the largest level EMC-VDN still wins", wins(MOST, "emc-vdn")),
        *(Statement(f"{title}: VDN does not solve the task", fails(title, "vdn")) for title in TITLES),
        Statement(
            "At the largest level EMC-TD stays in the noisy area longer than VDN",
            ahead(MOST, "emc-td", "vdn", measure=LURED),
        ),
        *(
            Statement(
                f"At the largest level {name} stays in the noisy area longer than EMC-VDN",
                ahead(MOST, arm, "emc-vdn", measure=LURED),
            )
            for name, arm in (("EMC-Ind", "emc-ind"), ("EMC-TD", "emc-td"))
        ),
        Statement(
            "At the largest level EMC-VDN spends more time around the goals than the others",
            ahead(MOST, "emc-vdn", "emc-ind", "emc-td", "vdn", measure=time_in("around the goals")),
        ),
    ),
    figures=lambda evidence, theme: plot_areas(evidence, MOST, theme),
)
