"""Many runs: a list of them, what of it is missing, and engines that do the rest. Every run is a plain run directory."""

from emc.sweeps.accelerator import find_accelerator as find_accelerator
from emc.sweeps.accelerator import leave_to_runs as leave_to_runs
from emc.sweeps.accelerator import seeds_in_one_run as seeds_in_one_run
from emc.sweeps.engine import Engine as Engine
from emc.sweeps.engine import Progress as Progress
from emc.sweeps.grid import Sweep as Sweep
from emc.sweeps.grid import grouped as grouped
from emc.sweeps.grid import jobs_of as jobs_of
from emc.sweeps.grid import read_sweep as read_sweep
from emc.sweeps.grid import seeds_of as seeds_of
from emc.sweeps.jobs import Job as Job
from emc.sweeps.jobs import State as State
from emc.sweeps.jobs import Survey as Survey
from emc.sweeps.jobs import trusted_by as trusted_by
from emc.sweeps.local import LocalEngine as LocalEngine
from emc.sweeps.on_ray import RayEngine as RayEngine
