"""A server calls its tasks as it likes: no filter of a client may be gone round by a name."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

import docs_world
from flare_parts import CLASSES, SHAPE, Training
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.private.fed.client.client_runner import TaskRouter

from glasshouse.errors import BadInput
from glasshouse.integrations.flare import DefendUpdate, MaskUpdates, RecordRounds, VetModel

pytestmark = pytest.mark.extras
NETWORK = "flare_parts:Network"
SCRIPT = str(docs_world.ROOT / "examples" / "flare_job" / "client.py")


def vetting(**options):
    return VetModel(NETWORK, SHAPE, CLASSES, **options)


def defending(**options):
    return DefendUpdate("clipping(norm=1.0)", NETWORK, SHAPE, CLASSES, **options)


def tasks_of(job):
    return [one.tasks for one in job._deploy_map[ALL_SITES].app_config.executors]


@pytest.mark.parametrize("made", [vetting, defending, MaskUpdates])
@pytest.mark.parametrize("task", ["train", "fit"])
def test_a_script_that_would_do_any_task_is_left_the_filters_alone(made, task):
    job = FedJob(name="some")
    job.to_clients(ScriptRunner(SCRIPT))
    assert tasks_of(job) == [["*"]]
    job.to_clients(made(task=task))
    assert tasks_of(job) == [[task]]


def test_filters_of_one_task_narrow_a_script_together():
    job = FedJob(name="some")
    job.to_clients(ScriptRunner(SCRIPT))
    for component in (vetting(), defending(), MaskUpdates()):
        job.to_clients(component)
    assert tasks_of(job) == [["train"]]


def test_a_filter_that_follows_one_task_is_not_put_on_another():
    job = FedJob(name="some")
    job.to_clients(Training())
    with pytest.raises(BadInput, match=r"acts on the task 'train', not on \['fit'\]; .*task=\.\.\.\)"):
        job.to_clients(defending(), tasks=["fit"])


@pytest.mark.parametrize("made", [vetting, defending, MaskUpdates])
@pytest.mark.parametrize("tasks", [["train", "validate"], ["tr*"], ["train", "*"]])
def test_an_executor_that_is_told_to_do_more_than_the_filter_sees_is_refused(made, tasks):
    job = FedJob(name="some")
    job.to_clients(Training(), tasks=tasks)
    with pytest.raises(BadInput, match=r"go round the filter by another name; .*tasks=\['train'\]"):
        job.to_clients(made())


def test_executors_that_do_not_train_keep_their_tasks():
    job = FedJob(name="some")
    job.to_clients(Training(), tasks=["train"])
    job.to_clients(Training(), tasks=["statistics", "count*"])
    job.to_clients(vetting())
    assert tasks_of(job) == [["train"], ["statistics", "count*"]]


def test_models_of_several_tasks_are_vetted_where_the_job_says_so():
    job = FedJob(name="some")
    job.to_clients(Training(), tasks=["train", "validate"])
    job.to_clients(vetting(), tasks=["train", "validate"])
    assert tasks_of(job) == [["train", "validate"]]


def test_a_recorder_on_the_server_changes_nothing_at_the_clients():
    job = FedJob(name="some")
    job.to_clients(Training())
    job.to_server(RecordRounds())
    assert tasks_of(job) == [["*"]]


def panics_of(component, table, *executors):
    """What the component stops a client for, whose executors do these tasks."""
    router = TaskRouter()
    for tasks in executors:
        router.add_executor(tasks, Training())
    tables = {"task_data_filters": {}, "task_result_filters": {}} | {table: {"train/in": [component]}}
    context, panics = FLContext(), []
    engine = SimpleNamespace(register_aux_message_handler=lambda topic, handler: None)
    context.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    runner = SimpleNamespace(task_router=router, **tables)
    context.set_prop(FLContextKey.RUNNER, runner, private=True, sticky=False)
    component.system_panic = lambda reason, where: panics.append(reason)
    component.handle_event(EventType.START_RUN, context)
    return panics


KINDS = [
    (vetting, "task_data_filters"),
    (defending, "task_result_filters"),
    (MaskUpdates, "task_result_filters"),
]


@pytest.mark.parametrize(("made", "table"), KINDS)
def test_a_client_whose_configuration_leaves_a_way_round_stops_before_its_first_task(made, table):
    for tasks in (["*"], ["train", "validate"]):
        (reason,) = panics_of(made(), table, tasks)
        assert reason.endswith("job.to_clients(ScriptRunner(...), tasks=['train'])")
    assert panics_of(made(), table, ["train"], ["statistics"]) == []
