"""Probes: what a recurrent network does, and why its gradients die.

Each is a function of a `Subject`, a model and what it reads, and returns numbers and a finding in words. `xray` runs
them all.
"""

from recur.probes.finding import Finding, Level, Seen, worst_first
from recur.probes.report import Report, xray
from recur.probes.subject import Layer, Subject

__all__ = ["Finding", "Layer", "Level", "Report", "Seen", "Subject", "worst_first", "xray"]
