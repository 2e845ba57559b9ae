"""The table of a configuration that says how the federation trains."""

from dataclasses import fields
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from glasshouse.learning.optimisers import Optimiser
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.schedules import Schedule

REPEATS = 1_000_000
"""The most rounds, epochs, clients or shadow models: beyond any experiment, and still counted at once."""

IMAGES = 1_000_000_000
"""The most images that a size may ask for."""


class Table(BaseModel):
    """A table of the configuration: every key has a default, an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TrainingTable(Table):
    """The federation: `rounds` of local training on a `fraction` of the clients.

    Updates reach the server through `channel`; a crafting server that is blind gets its rounds through the
    same one, or through secure aggregation where that is `plain`. The keys from `epochs` on are the recipe of
    a client's local training. The `schedule` of its learning rate spans all rounds, in each of which the rate
    stays, or with the `schedule_over` "epochs" the epochs of each local training anew.
    """

    strategy: str = "fedavg"
    channel: str = "plain"
    rounds: int = Field(default=10, ge=1, le=REPEATS)
    fraction: float = Field(default=1.0, gt=0, le=1)
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    local_test: int = Field(default=1000, ge=0, le=IMAGES)
    epochs: int = Field(default=1, ge=1, le=REPEATS)
    batch_size: int = Field(default=32, ge=0, le=IMAGES)
    optimiser: Optimiser = "sgd"
    lr: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    betas: Annotated[tuple[float, float], Field(strict=False)] | None = None
    alpha: float | None = None
    eps: float | None = None
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    schedule: Schedule = "constant"
    schedule_over: Literal["rounds", "epochs"] = "rounds"
    step_size: int | None = None
    gamma: float | None = None
    warmup: int = Field(default=0, ge=0, le=REPEATS)
    clip_grad_norm: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    mix_up: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    augment: str = ""
    precision: Literal["float32", "bfloat16"] = "float32"
    mode: Literal["train", "eval"] = "train"

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self.recipe()
        return self

    def recipe(self) -> Recipe:
        """The clients' recipe."""
        named = {field.name: getattr(self, field.name) for field in fields(Recipe) if field.name != "rounds"}
        changes = self.schedule != "constant" or self.warmup
        return Recipe(**named, rounds=self.rounds if changes and self.schedule_over == "rounds" else 0)
