"""Whether a run can be planned, before anything of its sizes is made."""

from __future__ import annotations

import warnings

from emc.envs.sizes import check_sizes
from emc.errors import UserError
from emc.runs.config import RunConfig
from emc.training.plan import Plan, check_fits, plan


def planned(config: RunConfig) -> Plan:
    """The bytes that a run needs; sizes that cannot even be counted are refused in one line."""
    check_sizes(config.env)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about numbers that do not fit, of which the refusal speaks
            return plan(config.method, config.env, config.budget, len(config.seeds))
    except UserError:
        raise
    except (OverflowError, MemoryError, ValueError, TypeError, ZeroDivisionError) as error:
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UserError(f"a run of these sizes cannot be planned: choose smaller ones ({said:.120})") from error


def must_fit(config: RunConfig) -> None:
    """Refuse a run that cannot be planned, or does not fit into memory."""
    check_fits(planned(config))
