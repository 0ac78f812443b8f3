"""Probes: what a recurrent network does, and why its gradients vanish or explode.

Each is a function of a `Subject`, a model and its input, and returns a `Measurement`: numbers, and a finding in words.
`xray` runs them all.
"""

from recur.diagnostics.finding import Finding, Level, Measurement, worst_first
from recur.diagnostics.report import Report, xray
from recur.diagnostics.subject import Layer, Subject

__all__ = ["Finding", "Layer", "Level", "Measurement", "Report", "Subject", "worst_first", "xray"]
