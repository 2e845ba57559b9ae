"""`glasshouse audit RECORD`: the rounds of a federation that somebody else ran."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from glasshouse.command_options import tell_decision
from glasshouse.errors import BadInput


def audit_folder(
    record: Path,
    elsewhere: Mapping[str, Any],
    *,
    model: str | None,
    images: Mapping[str, Any],
    seed: int | None,
    plan: bool,
    running: Mapping[str, Any],
) -> None:
    """Audit the rounds in the folder `record`; `elsewhere` are options that mean nothing for one."""
    from glasshouse.recording.reader import read_recording

    for option, value in elsewhere.items():
        if value:
            raise BadInput(f"{option} is of no use for {record}, whose training is recorded; leave it out")
    read_recording(record)  # what is wrong in it shows before torch is loaded

    from glasshouse.api import audit_record, plan_of_record
    from glasshouse.auditing.recorded.case import recorded_setting

    setting = recorded_setting().model_copy(update={} if seed is None else {"seed": seed})
    if plan:
        typer.echo(plan_of_record(record, setting, model=model, seeds=running["seeds"], **images))
        return
    results = audit_record(record, setting, model=model, **images, **running)
    if not running["quiet"]:
        tell_decision(results, setting.audit.limits)
    typer.echo(results.folder)
