"""The battery: the federation trained under each defence, and every attack run on it with its own access."""

from typing import Any

from torch import Tensor

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.bench import Bench
from glasshouse.auditing.grants import Grantor
from glasshouse.auditing.trial import Trial, slug
from glasshouse.defences import make_defences
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Finding, from_row
from glasshouse.learning.central import train_centrally
from glasshouse.learning.engine import Engine
from glasshouse.learning.scoring import Examiner
from glasshouse.learning.seeds import derive
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.store import RunFolder, read_tensors, write_tensors

Curves = dict[str, list[dict[str, Any]]]


def run_battery(
    bench: Bench, folder: RunFolder, engine: Engine, progress: Progress
) -> tuple[list[Finding], Curves]:
    """Do what is missing in `folder`; returns all findings, and the curves and pictures for the page."""
    findings = [_central_baseline(bench, folder, engine, progress)] if bench.setting.audit.central else []
    curves: Curves = {"training": [], "roc": [], "gallery": []}
    attacks = [(spec, kind) for spec in bench.setting.audit.attacks for kind in ATTACKS.make(spec).needs]
    for defence in dict.fromkeys(("none", *bench.setting.audit.defences)):
        trial = _train(bench, folder, engine, progress, defence)
        findings.append(
            _utility(bench, trial.federation.examiner.hits(trial.history.vector), defence=defence)
        )
        curves["training"] += trial.curve()
        for spec, kind in progress.track(attacks, f"attacks on {defence}", len(attacks)):
            kept = trial.attack(spec, kind)
            findings += [from_row(row) for row in kept["rows"]]
            curves["roc"] += kept["roc"]
            curves["gallery"] += kept["gallery"]
    return findings, curves


def _train(bench: Bench, folder: RunFolder, engine: Engine, progress: Progress, defence: str) -> Trial:
    """The federation under `defence`, trained to the end of its plan."""
    setting = bench.setting
    training = setting.training
    plan = Plan(
        rounds=training.rounds,
        fraction=training.fraction,
        target_accuracy=training.target_accuracy,
        observe=tuple(range(min(training.rounds, setting.audit.observe))),
    )
    federation = Federation(
        bench.model,
        bench.split,
        training.recipe(),
        engine=engine,
        strategy=STRATEGIES.make(training.strategy),
        defences=make_defences(defence),
        local_test=training.local_test,
        seed=derive(setting.seed, "federation"),
    )
    record = Record(folder.work / slug(defence))
    history = federation.run(
        bench.start, plan, record=record, progress=progress, label=f"training, {defence}"
    )
    seen = [record.observed(number) for number in plan.observe if number < len(history.rounds)]
    grantor = Grantor(bench.model, bench.split.pool.classes, federation, history, seen)
    weights = folder.path / "weights" / f"{slug(defence)}.safetensors"
    if not weights.exists():
        write_tensors(weights, grantor.model.state_dict())
    return Trial(bench, folder, defence, federation, history, grantor)


def _central_baseline(bench: Bench, folder: RunFolder, engine: Engine, progress: Progress) -> Finding:
    """The same network trained on all clients' data at once, for as many epochs."""
    file = folder.work / "central.safetensors"
    if not file.exists():
        recipe = bench.setting.training.recipe()
        epochs = recipe.epochs * bench.setting.training.rounds
        with progress.task("training, central", 1) as task:
            vector = train_centrally(
                bench.model,
                bench.start,
                bench.split,
                recipe,
                epochs,
                derive(bench.setting.seed, "central"),
                engine,
            )
            write_tensors(file, {"central": vector})
            task.advance()
    tensors, _ = read_tensors(file)
    examiner = Examiner(bench.model, bench.split.pool, bench.split.test, engine)
    return _utility(bench, examiner.hits(tensors["central"]), defence="none", strategy="central")


def _utility(bench: Bench, hits: Tensor, **entries: Any) -> Finding:
    """Test accuracy; the blind guess is the test set's most frequent class."""
    share = proportion(int(hits.sum()), len(hits))
    majority = bench.split.images("test").label_counts().max().item() / len(hits)
    strategy = entries.get("strategy", bench.setting.training.strategy)
    return bench.finding(
        cell=f"{strategy}/{entries['defence']}",
        family="utility",
        metric="test-accuracy",
        value=share.value,
        low=share.low,
        high=share.high,
        chance=majority,
        n=share.n,
        **entries,
    )
