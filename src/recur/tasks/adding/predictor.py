"""What a trained network can do: be measured, and say when it had solved its task."""

from recur.tasks.synthetic import Solver

PREDICTOR = Solver
