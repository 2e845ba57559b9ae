"""What the components do when they are added to a job."""

from collections.abc import Mapping
from typing import Any

from nvflare.apis.filter import Filter

from glasshouse.errors import BadInput


def add(component: Filter, filter_type: str, job: Any, ctx: Any, options: Mapping[str, Any]) -> None:
    """Add a filter of the messages of its task to the job, as the Job API and recipes do.

    The job carries no copies of Glasshouse's files: it is installed where a component of it runs, and a job
    without code of its own needs no site's consent to foreign code.
    """
    if options.get("filter_type") not in (None, filter_type):
        raise BadInput(
            f"{type(component).__name__} looks at each {filter_type}, not at each {options['filter_type']}; "
            "leave filter_type out, or with a recipe add it as the other kind of filter"
        )
    packages = job.job.app_packages
    if "glasshouse" not in packages:
        job.set_app_packages([*packages, "glasshouse"])
    tasks = options.get("tasks") or [component.task]
    Filter.add_to_fed_job(component, job, ctx, filter_type=filter_type, tasks=tasks)
