"""The flow that checks the warehouse, expires old snapshots, and merges small files."""

from datetime import timedelta
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.support.parameters import Count, Hours, Place, with_final_state
from rlfocal.base.errors import RunError
from rlfocal.base.wording import count_noun
from rlfocal.methods.learning.store import trained_on
from rlfocal.upkeep.doctor import diagnose
from warehouse import open_warehouse
from warehouse.expiry import expire, merge


@flow(name="maintain", persist_result=False)
@with_final_state
def maintain(
    repair: bool = False,
    keep: Count | None = None,
    older_than_days: Count | None = None,
    compact: bool = True,
    delete_after_hours: Hours = 24,
    warehouse: Place = None,
) -> dict[str, Any]:
    """Check every file and row of the warehouse, expire old snapshots, and merge small files.

    If something is broken, nothing is expired or merged, and the run fails with what doctor says.

    Args:
        repair: Drop unreadable files and incomplete partitions first; the next extraction adds them again.
        keep: Expire all but the newest N snapshots. Those that evaluations or this worker's trained agents
            read stay. Default: not by number.
        older_than_days: Expire only snapshots older than this many days. Default: not by age; if neither is
            given, none expires.
        compact: Merge many small files into few.
        delete_after_hours: Delete files once no snapshot has needed them for so long: running queries may
            read them.
    """
    findings = diagnose(warehouse, fix=repair)
    create_table_artifact(key="maintain-doctor", table=[vars(finding) for finding in findings])
    faults = [f"{f.check}: {f.message}" for f in findings if f.level == "fault"]
    if faults:
        others = f", and {count_noun(len(faults) - 1, 'other fault')}" if len(faults) > 1 else ""
        raise RunError(f"{faults[0]}{others}; see the artifact maintain-doctor")
    done: dict[str, Any] = {}
    grace = timedelta(hours=delete_after_hours)
    with open_warehouse(warehouse, create=False) as opened:
        if keep is not None or older_than_days is not None:
            age = None if older_than_days is None else timedelta(days=older_than_days)
            needed = trained_on(opened.location.checkpoints)
            done |= expire(
                opened, keep=keep, older_than=age, training_snapshots=needed, grace=grace
            )._asdict()
        if compact:
            done |= merge(opened, grace)._asdict()
    lines = ["# Done", "", *(f"- {name}: {value}" for name, value in done.items())]
    create_markdown_artifact(key="maintain-done", markdown="\n".join(lines))
    return done
