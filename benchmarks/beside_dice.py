"""The same job with waysout and with dice-ml: a fitted pipeline, a data frame, one refused person.

Prints the table of docs/python.md: lines of code, seconds, rows the model was asked, and what came
back, each put to the model again by this script. `pip install dice-ml` first.

    python benchmarks/beside_dice.py
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import waysout

PEOPLE = 10
FIXED = ["age"]


class Counting:
    """A model that counts the rows it is asked."""

    def __init__(self, model: Any) -> None:
        self.model, self.rows = model, 0
        self.classes_ = model.classes_
        self.feature_names_in_ = model.feature_names_in_

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        """Answer, and count."""
        self.rows += len(frame)
        return self.model.predict_proba(frame)

    def predict(self, frame: pd.DataFrame) -> Any:
        """Answer, and count."""
        self.rows += len(frame)
        return self.model.predict(frame)


# The jobs: what stands between the marks is what a user writes.


def with_waysout(model: Any, X: pd.DataFrame, y: pd.Series, person: int) -> pd.DataFrame:
    """Find ways with waysout."""
    # >>> 1
    result = waysout.find(model, X.iloc[person], data=X, y=y, fixed=FIXED)
    # <<<
    return result.to_frame(all_features=True).head(5)


def with_dice(model: Any, X: pd.DataFrame, y: pd.Series, person: int) -> pd.DataFrame:
    """Find counterfactuals with dice-ml."""
    import dice_ml

    # >>> 8
    numbers = X.select_dtypes("number").columns.tolist()
    data = dice_ml.Data(
        dataframe=X.assign(outcome=y), continuous_features=numbers, outcome_name="outcome"
    )
    wrapped = dice_ml.Model(model=model, backend="sklearn")
    search = dice_ml.Dice(data, wrapped, method="genetic")
    vary = [name for name in X.columns if name not in FIXED]
    found = search.generate_counterfactuals(
        X.iloc[[person]], total_CFs=5, desired_class=1, features_to_vary=vary, verbose=False
    )
    # <<<
    rows: pd.DataFrame = found.cf_examples_list[0].final_cfs_df[X.columns].astype(X.dtypes)
    return rows


def needless(model: Any, X: pd.DataFrame, person: int, row: pd.Series) -> bool:
    """Whether one of the changes can be taken back and the answer is still a yes."""
    query = X.iloc[person]
    changed = [name for name in X.columns if row[name] != query[name]]
    tried = []
    for name in changed:
        less = row.copy()
        less[name] = query[name]
        tried.append(less)
    if len(changed) < 2:
        return False
    return bool((model.predict(pd.DataFrame(tried).astype(X.dtypes)) == 1).any())


def main() -> None:
    """Run both for the same people, and print the table."""
    warnings.simplefilter("ignore")
    people = waysout.load_dataset("synthetic")
    X, y = people.to_frame(), pd.Series(people.labels).astype(int)
    text = X.select_dtypes(exclude="number").columns.tolist()
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), text), remainder="passthrough"
    )
    model = make_pipeline(encode, RandomForestClassifier(100, random_state=0)).fit(X, y)
    refused = np.flatnonzero(model.predict(X) == 0)[:PEOPLE].tolist()
    tools: dict[str, Callable[..., pd.DataFrame]] = {
        "waysout.find": with_waysout,
        "dice-ml, genetic": with_dice,
    }
    print("| | seconds | model rows | returned | approved | with a needless change | changes |")
    print("|---|---|---|---|---|---|---|")
    for name, tool in tools.items():
        seconds, asked, returned, valid, padded, changes = 0.0, 0, 0, 0, 0, 0
        for person in refused:
            counting = Counting(model)
            start = time.perf_counter()
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                rows = tool(counting, X, y, person)[list(X.columns)]
            seconds += time.perf_counter() - start
            asked += counting.rows
            returned += len(rows)
            valid += int((model.predict(rows) == 1).sum())
            padded += sum(needless(model, X, person, row) for _, row in rows.iterrows())
            changes += sum(int((row != X.iloc[person]).sum()) for _, row in rows.iterrows())
        n = len(refused)
        print(
            f"| {name} | {seconds / n:.1f} | {asked / n:,.0f} | {returned / n:.1f} "
            f"| {valid / returned:.0%} | {padded / returned:.0%} | {changes / returned:.1f} |"
        )


if __name__ == "__main__":
    main()
