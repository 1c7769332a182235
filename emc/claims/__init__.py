"""What a paper claims, as something that can be run: which runs it needs, its figure, and a verdict on each statement."""

from emc.claims.claim import Arm, Claim, Panel, Statement, Verdict, VerdictKind
from emc.claims.evidence import Evidence, Sample, gather, jobs_of

__all__ = ["Arm", "Claim", "Evidence", "Panel", "Sample", "Statement", "Verdict", "VerdictKind", "gather", "jobs_of"]
