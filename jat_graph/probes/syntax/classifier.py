"""The linear model of the attention probe."""

from __future__ import annotations

from typing import Any

import numpy as np

PENALTIES = (0.003, 0.03, 0.3, 3.0)  # C of scikit-learn: large is free
HELD_OUT = 0.2  # of the sentences, to choose among them
LEAST = 10  # sentences, below which none can be spared


def guess(known: Any, labels: Any, rows: Any, asked: Any, seed: int) -> Any:  # [n, F] … -> [m]
    """Learn labels of what is known, rows of one sentence apart from others, and guess more."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, GroupShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if (sentences := len(np.unique(rows))) < LEAST:
        raise ValueError(f"train must give pairs of {LEAST} sentences at least, got {sentences}")
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, tol=1e-3))
    split = GroupShuffleSplit(1, test_size=HELD_OUT, random_state=seed)
    search = GridSearchCV(linear, {"logisticregression__C": PENALTIES}, cv=split)
    return search.fit(known, labels, groups=rows).predict(asked)
