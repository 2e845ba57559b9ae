"""What a record tells of its federation, and what is assumed where it does not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from glasshouse.auditing.recorded.holders import Holders
from glasshouse.auditing.setting import Setting, explain, make_setting
from glasshouse.auditing.training_table import TrainingTable
from glasshouse.errors import BadInput
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.recipe import Recipe
from glasshouse.recording.description import REMEDY, Description
from glasshouse.recording.reader import RecordedRound, Recording

TOLD_FIRST = ("epochs", "batch_size", "optimiser", "lr")
"""The entries of a recipe that attacks go by most."""


def as_told(recording: Recording, setting: Setting, named: str, holders: Holders | None) -> Setting:
    """The setting with what the record tells: the data's name, the clients, the recipe, the rounds."""
    told, rounds = recording.description, recording.rounds
    table = {key: value for key, value in told.recipe.items() if key in TrainingTable.model_fields}
    over = "rounds" if told.recipe.get("rounds") else "epochs"
    last = max((one.number for one in rounds), default=1)
    cohort = max((len(one.clients) for one in rounds), default=1)
    training = table | {
        "strategy": told.strategy if told.strategy in STRATEGIES.places else "fedavg",
        "rounds": max(last, told.recipe.get("rounds") or 1),
        "fraction": cohort / max(1, len(recording.clients)),
        "schedule_over": over,
        "local_test": 0,
    }
    data = {"name": recording.folder.resolve().name, "clients": len(recording.clients) or None}
    try:
        tables = make_setting({"data": data, "training": training})
    except ValidationError as error:
        raise BadInput(f"{recording.folder}: {explain(error)}; {REMEDY}") from None
    placed = holders is not None and holders.clients is not None
    audit: dict[str, Any] = {"central": False, "defences": (), "ladder": False}
    if not placed:
        audit["shadow_training"] = "central"
    return setting.model_copy(
        update={
            "data": tables.data,
            "model": setting.model.model_copy(update={"name": named}),
            "training": tables.training,
            "audit": setting.audit.model_copy(update=audit),
        }
    )


def sizes_of(rounds: Sequence[RecordedRound], numbers: Mapping[str, int]) -> tuple[int, ...]:
    """How many samples each client had, in the last round that it took part in."""
    latest = {client.name: client.samples for one in rounds for client in one.clients}
    return tuple(latest[name] for name in numbers)


def assumed(description: Description) -> Iterator[str]:
    """What the record does not say of the training, and how it is read."""
    usual, told = Recipe(), description.recipe
    missing = [key for key in TOLD_FIRST if key not in told]
    if missing:
        values = ", ".join(f"{key} = {getattr(usual, key)}" for key in missing)
        yield f"the record does not tell {', '.join(missing)}; assumed: {values}"
    if description.strategy not in STRATEGIES.places:
        named = "none" if description.strategy is None else f"{description.strategy!r}, unknown here"
        yield f"the record names as strategy {named}; clients are taken to train as in fedavg"


def notes(
    recording: Recording,
    watched: Sequence[RecordedRound],
    holders: Holders | None,
    numbers: Mapping[str, int],
) -> Iterator[str]:
    """What a reader has to know of the record beside its numbers, in words."""
    rounds = recording.rounds
    if rounds:
        gaps = rounds[-1].number - rounds[0].number + 1 - len(rounds)
        left_out = f", {gaps} in between are not" if gaps else ""
        chosen = f"; {len(watched)} of them are attacked" if len(watched) < len(rounds) else ""
        yield (
            f"{len(rounds)} rounds of {len(numbers)} clients are recorded, from round {rounds[0].number} to "
            f"{rounds[-1].number}{left_out}{chosen}"
        )
    if not {*TOLD_FIRST} - recording.description.recipe.keys():
        yield "clients are taken to train as the recipe says, and with nothing that it does not name"
    if holders is not None and holders.clients is not None:
        sizes = sizes_of(rounds, numbers)
        for name, number in numbers.items():
            held = len(holders.clients[number])
            if held and held != sizes[number]:
                yield f"client {name!r} trained on {sizes[number]} samples, and {held} images are given"
                break
