"""Options of the task grid, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.errors import OptionError
from recur.i18n import Message
from recur.models.options import GridModelOptions
from recur.options import Between, LayersOrNone, Length, OneOf, Positive
from recur.tasks.common.options import SplitOptions, TaskOptions


@dataclass(frozen=True, kw_only=True)
class GridOptions(TaskOptions, SplitOptions, GridModelOptions):
    """Classify images with a recurrence in two dimensions. Input: a folder of folders, or an .npz."""

    title = "grid"
    reads = "images"

    size: Length | None = None
    """Scale every image to this many pixels per side; by default all images must have one size."""

    shift: LayersOrNone = 1
    """Training: shift every image randomly by up to this many pixels."""

    class_weights: Literal["none", "balanced"] = "none"
    """Loss weights: balanced gives every class the same total weight; none every image."""

    pixel_mean: tuple[float, ...] = ()
    """Value subtracted from the pixels of every channel; default: the training mean."""

    pixel_deviation: tuple[float, ...] = ()
    """Divisor of the pixels; default: the training standard deviation."""

    # Defaults of its own ---------------------------------------------------------------------------------

    lr: Positive = 0.02

    default_epochs = 60.0

    search = MappingProxyType(
        {
            "hidden_size": Between(8, 64, log=True),
            "num_layers": OneOf((1, 2)),
            "lr": Between(0.002, 0.05, log=True),
            "dropout_output": Between(0.0, 0.5),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.pixel_mean) != len(self.pixel_deviation) or len(self.pixel_mean) not in (0, 1, 3):
            raise OptionError(
                "pixel_mean and pixel_deviation have one number for each of 1 or 3 channels, both or neither"
            )
        if not all(d > 0 for d in self.pixel_deviation):
            raise OptionError(
                Message(
                    "{name} must be above {low}, got {value}",
                    name="pixel_deviation",
                    low="0",
                    value=self.pixel_deviation,
                )
            )


OPTIONS = GridOptions
