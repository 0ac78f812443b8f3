"""Linear autoregressions of series of unequal length, in one form."""

from __future__ import annotations

from recur.baselines.forecasts import Autoregression, AutoregressionOptions, fit_autoregression
from recur.data.text.stream import Floats


def fit_in_form(values: Floats, steps: int, form: AutoregressionOptions) -> Autoregression | None:
    """Of values (n, C): with the lags of the form, or as many as there are values for; None where that is none."""
    lags = min(form.lags, (len(values) - 2 - (steps - 1 if form.direct else 0)) // 2)
    return fit_autoregression(values, steps, form._replace(lags=lags)) if lags > 0 else None
