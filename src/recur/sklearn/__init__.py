"""scikit-learn estimators: a classifier of texts, a tagger of words and a forecaster of a series.

    RecurClassifier(minutes=1).fit(texts, labels).predict(texts)
    GridSearchCV(RecurClassifier(epochs=5), {"hidden_size": [64, 128], "lr": [0.002, 0.004]}).fit(texts, labels)
    RecurTagger().fit(sentences, tags).predict(sentences)
    RecurForecaster(horizon=12).fit(None, values).predict()

Parameters are the options of the task, as in `recur train --task classify --help`; None is the task's own default,
which may depend on the data. `random_state` is its seed. A part of the data, `validation_fraction`, is held out to
choose the best weights by. They clone, pickle (the run's files as bytes, with nothing that executes) and stand in
pipelines; a fitted one has the model that `recur.load` gives as `model_`.

This module needs the extra `sklearn`: pip install 'recur[sklearn]'.
"""

from recur.errors import RecurError

try:
    import sklearn as _  # noqa: F401
except ImportError:
    raise RecurError("scikit-learn is not installed: pip install 'recur[sklearn]'") from None

from recur.sklearn.estimators import RecurClassifier, RecurForecaster, RecurTagger

__all__ = ["RecurClassifier", "RecurForecaster", "RecurTagger"]
