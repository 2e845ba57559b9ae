"""The command `glasshouse search-policy`."""

from typing import TYPE_CHECKING, Annotated

import typer

from glasshouse.command_options import EngineOption, Out, Quiet, Seed, Workers, resumable
from glasshouse.models.signature import check_named

if TYPE_CHECKING:
    from glasshouse.defences.policies.search import Outcome, Ranked


def search_policy(
    data: Annotated[
        str, typer.Option(help="Named set, folder, .npz, hf:name or package.module:function.")
    ] = "digits",
    model: Annotated[str, typer.Option(help="Name of the zoo or package.module:factory.")] = "lenet",
    candidates: Annotated[int, typer.Option(help="Policies to draw; the paper draws 1500.")] = 300,
    keep: Annotated[int, typer.Option(help="Policies to rank at the end.")] = 10,
    images: Annotated[int, typer.Option(help="Images that the last ones are ranked on.")] = 100,
    precision: Annotated[
        str, typer.Option(help="float32, or bfloat16: faster for wide networks on some CPUs, less exact.")
    ] = "float32",
    out: Out = None,
    seed: Seed = None,
    workers: Workers = None,
    engine: EngineOption = "processes",
    quiet: Quiet = False,
) -> None:
    """Find a transformation policy that hides the images of this model's training in its gradients.

    Policies are drawn at random and scored without training with them: S_acc drops those that images could no
    longer be told apart with, S_pri ranks the rest. The hybrid of the best two goes to policy.toml, for the
    defence transformation-policy. A search that was stopped continues with the same command.

    Examples:

        glasshouse search-policy

        glasshouse search-policy --data cifar100 --model resnet20-4 --candidates 1500 --out runs/policy
    """
    check_named(model)
    with resumable():
        from glasshouse.api import search_policy as run

        found = run(
            data,
            model,
            candidates=candidates,
            keep=keep,
            images=images,
            precision=precision,
            seed=seed or 0,
            out=out,
            workers=workers,
            engine=engine,
            quiet=quiet,
        )
    if not quiet:
        for line in _summary(found.outcome):
            typer.echo(line)
    typer.echo(found.file)


def _summary(outcome: "Outcome") -> list[str]:
    """The result as lines for the screen."""
    width = max(len(outcome.hybrid.policy), len("untransformed"))
    head = f"{'policy':{width}}  S_pri (lower is better)        S_acc"
    rows = [_row(one.policy, one, width) for one in (*outcome.ranked, outcome.hybrid)]
    return [
        f"{outcome.passed} of {outcome.distinct} different policies reach S_acc "
        f"{outcome.threshold:.1f}; the best {len(outcome.ranked)} and the hybrid of two:",
        head,
        *rows,
        _row("untransformed", outcome.untransformed, width),
    ]


def _row(name: str, one: "Ranked", width: int) -> str:
    privacy = one.privacy
    interval = f"{privacy.value:.3f} ({privacy.low:.3f} to {privacy.high:.3f}), n={privacy.n}"
    return f"{name:{width}}  {interval:30} {one.accuracy.value:.1f}"
