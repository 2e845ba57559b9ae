"""What the components do when they are added to a job, and when a client begins to run it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.job_config.defs import FilterType
from nvflare.job_config.fed_app_config import ClientAppConfig

from glasshouse.errors import BadInput

ANY = ["*"]
"""The tasks of an executor where a job does not say which: FLARE's own default."""


def add(component: Filter, filter_type: str, job: Any, ctx: Any, options: Mapping[str, Any]) -> None:
    """Add a filter of the messages of its task to the job, as the Job API and recipes do.

    The job carries no copies of Glasshouse's files: it is installed where a component of it runs, and a job
    without code of its own needs no site's consent to foreign code. A client that would train under any
    task's name is left the filter's alone, as FLARE looks filters up by the exact name.
    """
    name = type(component).__name__
    if options.get("filter_type") not in (None, filter_type):
        raise BadInput(
            f"{name} looks at each {filter_type}, not at each {options['filter_type']}; "
            "leave filter_type out, or with a recipe add it as the other kind of filter"
        )
    tasks = list(options.get("tasks") or [component.task])
    app = job._get_app(ctx).get_app_config()  # no other way leads to the executors of a job
    if isinstance(app, ClientAppConfig):
        if filter_type == FilterType.TASK_RESULT and tasks != [component.task]:
            raise BadInput(
                f"{name} acts on the task {component.task!r}, not on {tasks}; leave tasks out, and name "
                f"another task where the filter is made: {name}(..., task=...)"
            )
        _narrow(name, app.executors, tasks)
    packages = job.job.app_packages
    if "glasshouse" not in packages:
        job.set_app_packages([*packages, "glasshouse"])
    Filter.add_to_fed_job(component, job, ctx, filter_type=filter_type, tasks=tasks)


def check_tasks(component: Filter, fl_ctx: FLContext) -> None:
    """Stop this client before its first task where the server could go round the filter by a task's name."""
    runner = fl_ctx.get_prop(FLContextKey.RUNNER)
    guarded = {
        task.rpartition(FilterKey.DELIMITER)[0]
        for table in (runner.task_data_filters, runner.task_result_filters)
        for task, filters in table.items()
        if component in filters
    }
    executors: dict[int, list[str]] = {}
    for task, executor in runner.task_router.task_table.items():
        executors.setdefault(id(executor), []).append(task)
    for tasks in executors.values():
        unseen = _unseen(tasks, guarded)
        if unseen:
            component.system_panic(_way_round(type(component).__name__, guarded, unseen), fl_ctx)
            return


def _narrow(name: str, executors: Sequence[Any], guarded: Collection[str]) -> None:
    """Leave the one executor of a client app the `guarded` tasks; refuse where a job names others."""
    for one in executors:
        unseen = _unseen(one.tasks, guarded)
        if unseen and (one.tasks != ANY or len(executors) > 1):
            raise BadInput(_way_round(name, guarded, unseen))
        if unseen:
            one.tasks = list(guarded)


def _unseen(tasks: Iterable[str], guarded: Collection[str]) -> list[str]:
    """The tasks, or patterns of tasks, of an executor beside the `guarded` ones, if it does any of those."""
    tasks = set(tasks)
    does_guarded = any(fnmatch(task, pattern) for task in guarded for pattern in tasks)
    return sorted(tasks - set(guarded)) if does_guarded else []


def _way_round(name: str, guarded: Collection[str], unseen: Collection[str]) -> str:
    return (
        f"{name} sees the tasks {sorted(guarded)} alone, and their executor also answers {list(unseen)}, so "
        "that a server could go round the filter by another name; give the executor those tasks alone: "
        f"job.to_clients(ScriptRunner(...), tasks={sorted(guarded)})"
    )
