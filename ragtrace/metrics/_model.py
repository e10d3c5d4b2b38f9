"""S²MIA's model form: a classifier on standardised features, fitted on the reference half (section 3.2).

The paper leaves the classifier open ("including neural networks and XGBoost"). Ours are scikit-learn's with its
defaults, but for sizes that suit two features; ``xgboost`` where that package is installed (extra ``xgboost``).
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ragtrace.stats.results import Bools, Floats

Model = Literal["logistic", "boosting", "mlp", "xgboost"]
MODELS: tuple[Model, ...] = ("logistic", "boosting", "mlp") + (("xgboost",) if find_spec("xgboost") else ())
SEED = 0


def classifier(model: Model) -> Any:
    """Not fitted yet; the same data give the same model."""
    if model == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression()
    if model == "boosting":
        from sklearn.ensemble import GradientBoostingClassifier

        return GradientBoostingClassifier(random_state=SEED)
    if model == "mlp":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier((16,), solver="lbfgs", alpha=0.01, max_iter=200, random_state=SEED)
    from xgboost import XGBClassifier  # type: ignore[import-not-found,unused-ignore]

    return XGBClassifier(random_state=SEED, n_jobs=1)


def learned(model: Model, labels: Bools, features: Floats, others: Floats) -> Floats:
    """The scores of ``others`` (m, k) by a model fitted on ``features`` (n, k): log-odds of being a member, or its
    probability where the model gives no log-odds.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), classifier(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is measured on other targets than it was fitted on
        pipeline.fit(features, labels)
    if hasattr(pipeline, "decision_function"):
        return pipeline.decision_function(others)  # type: ignore[no-any-return]
    return pipeline.predict_proba(others)[:, 1].astype(float)  # type: ignore[no-any-return]
