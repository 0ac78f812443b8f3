"""Several taggers as one: the mean of what they say of words and of moves between tags.

The scores of a sentence's tags are then the mean of theirs, so that P(tags) ∝ Π P_m(tags)^(1/M), and the best ones
are found by the same search.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.models.tagger import Each, OutputTagger, TagsOut, WordTagger
from recur.models.words import Words
from recur.nn import CRF


class Taggers(TagsOut):
    """Of the same tokens and tags, all with a CRF or none."""

    def __init__(self, members: Sequence[WordTagger | OutputTagger]) -> None:
        super().__init__()
        if any(isinstance(member, OutputTagger) for member in members):
            raise OptionError("taggers whose steps read tags (--recurrence output) do not serve as one")
        fields = [member.tags for member in members if isinstance(member.tags, CRF)]
        if len(fields) not in (0, len(members)):
            raise OptionError("taggers with a CRF and taggers without one do not serve as one")
        self.members, self.class_weights = nn.ModuleList(members), None
        self.tags = copy.deepcopy(fields[0]) if fields else Each()
        if isinstance(self.tags, CRF):
            with torch.no_grad():
                for name, weight in self.tags.named_parameters():
                    weight.copy_(torch.stack([field.get_parameter(name) for field in fields]).mean(0))

    @property
    def output(self) -> nn.Linear:
        first = self.members[0].output
        assert isinstance(first, nn.Linear)
        return first

    def forward(self, words: Words, tags: Tensor | None = None) -> Tensor:
        """Scores (B, W, classes)."""
        return torch.stack([member(words) for member in self.members]).mean(0)
