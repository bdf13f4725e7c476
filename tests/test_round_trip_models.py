"""Every kind of model × every form of its input → find → every export → back to the model itself.

What goes back is asked by the code of this file, which knows the model and the frame it was trained
on and nothing of ours: each exported row must be a yes. One cell of each kind runs by default, all
of them with ``-m slow``.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import waysout

pytest.importorskip("sklearn")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

ROWS = 60
PEOPLE = 2
TEXT = ["job", "owns_home", "region"]
Ask = Callable[[pd.DataFrame], Any]
"""Rows of the user's frame in, one decision a row out (1 is a yes)."""


def table(n: int = 300) -> tuple[pd.DataFrame, pd.Series[Any]]:
    draws = np.random.default_rng(11)
    frame = pd.DataFrame(
        {
            "age": draws.integers(20, 70, n),
            "income": draws.normal(40, 12, n).round(1),
            "debt": draws.integers(0, 30, n),
            "children": draws.integers(0, 4, n),
            "job": draws.choice(["clerk", "cook", "driver"], n),
            "owns_home": draws.choice(["N", "Y"], n),
            "insured": draws.integers(0, 2, n),
            "region": draws.choice(["01", "02", "10"], n),
        }
    )
    score = frame["income"] - 1.5 * frame["debt"] + 6 * (frame["owns_home"] == "Y")
    score += 5 * frame["insured"] + 4 * (frame["job"] == "clerk") + draws.normal(0, 3, n)
    return frame, (score > 28).astype(int)


X, y = table()


def numbers() -> pd.DataFrame:
    return X.drop(columns=TEXT)


def coded() -> pd.DataFrame:
    return X.assign(**{name: pd.factorize(X[name], sort=True)[0] for name in TEXT})


def categories() -> pd.DataFrame:
    return X.astype(dict.fromkeys(TEXT, "category"))


def pipeline(last: Any, frame: pd.DataFrame = X) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [n for n in TEXT if n in frame]),
        (StandardScaler(), [n for n in frame if n not in TEXT]),
    )
    return make_pipeline(encode, last).fit(frame, y)


# Each kind: the model, the frame it was trained on, and how it is asked without our code.


def sklearn_pipeline(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    model = pipeline(LogisticRegression())
    return model, in_form(X, form), model.predict


def forest_on_codes(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    frame = coded()
    if form == "numpy":
        model = RandomForestClassifier(30, random_state=0).fit(frame.to_numpy(float), y)
        return model, frame.to_numpy(float), lambda rows: model.predict(rows.to_numpy(float))
    model = RandomForestClassifier(30, random_state=0).fit(frame, y)
    return model, in_form(frame, form), model.predict


def hist_gradient_boosting(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    frame = categories()
    model = HistGradientBoostingClassifier(max_iter=30, categorical_features="from_dtype")
    model.fit(frame, y)
    return model, frame, lambda rows: model.predict(rows.astype(frame.dtypes))


def calibrated_svc(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    model = pipeline(CalibratedClassifierCV(SVC(), cv=2))
    return model, in_form(X, form), model.predict


def lightgbm(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    lgb = pytest.importorskip("lightgbm")
    frame = categories() if form != "numbers" else numbers()
    model = lgb.LGBMClassifier(n_estimators=30, verbose=-1).fit(frame, y)
    if form == "booster":
        booster = model.booster_
        return booster, frame, lambda r: booster.predict(r.astype(frame.dtypes)) >= 0.5
    return model, frame, lambda rows: model.predict(rows.astype(frame.dtypes))


def xgboost(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    xgb = pytest.importorskip("xgboost")
    frame = categories() if form == "category" else numbers()
    model = xgb.XGBClassifier(n_estimators=30, enable_categorical=True).fit(frame, y)
    return model, frame, lambda rows: model.predict(rows.astype(frame.dtypes))


def catboost(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    cat = pytest.importorskip("catboost")
    model = cat.CatBoostClassifier(
        iterations=30, verbose=False, allow_writing_files=False, cat_features=TEXT, thread_count=1
    )
    frame = X if form == "pandas" else categories()
    model.fit(frame, y)
    return model, frame, lambda rows: model.predict(rows.astype(frame.dtypes))


def onnx(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    frame = numbers()
    fitted = RandomForestClassifier(20, random_state=0).fit(frame.to_numpy(np.float32), y)
    first = frame.to_numpy(np.float32)[:1]
    file = folder / "model.onnx"
    # An operator set that every onnxruntime we allow can read.
    made = skl2onnx.to_onnx(fitted, first, options={"zipmap": False}, target_opset=17)
    file.write_bytes(made.SerializeToString())
    model = waysout.load_model(file)

    def ask(rows: pd.DataFrame) -> Any:
        import onnxruntime

        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return session.run(None, {name: rows.to_numpy(np.float32)})[0]

    return model, frame, ask


def skops(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    io_ = pytest.importorskip("skops.io")
    model = pipeline(LogisticRegression())
    io_.dump(model, folder / "model.skops")
    types = io_.get_untrusted_types(file=folder / "model.skops")
    loaded = waysout.load_model(folder / "model.skops", trusted_types=types)
    return loaded, in_form(X, form), model.predict


def torch(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    torch_ = pytest.importorskip("torch")
    torch_.manual_seed(0)
    frame = numbers()
    values = torch_.tensor(frame.to_numpy(np.float32))
    scale = torch_.tensor(1 / frame.to_numpy(np.float32).max(axis=0))
    inner = torch_.nn.Linear(frame.shape[1], 1)

    class Scaled(torch_.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = inner, torch_.nn.Sigmoid()

        def forward(self, rows: Any) -> Any:
            return self.head(self.inner(rows * scale))

    model, wanted = Scaled(), torch_.tensor(y.to_numpy(np.float32))
    steps = torch_.optim.Adam(model.parameters(), 0.1)
    for _ in range(120):
        steps.zero_grad()
        torch_.nn.functional.binary_cross_entropy(model(values)[:, 0], wanted).backward()
        steps.step()

    def ask(rows: pd.DataFrame) -> Any:
        with torch_.no_grad():
            return model(torch_.tensor(rows.to_numpy(np.float32)))[:, 0].numpy() >= 0.5

    return model, frame if form == "pandas" else frame.to_numpy(np.float32), ask


def function(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    fitted = pipeline(LogisticRegression())

    def chances(rows: Any) -> Any:
        frame = rows if isinstance(rows, pd.DataFrame) else rows.to_pandas()
        return fitted.predict_proba(frame)[:, 1]

    def labels(rows: Any) -> Any:
        return fitted.predict(rows)

    return labels if form == "labels" else chances, in_form(X, form), fitted.predict


def http(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    fitted = pipeline(LogisticRegression())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            frame = pd.DataFrame(body["rows"])
            said = json.dumps({"predictions": fitted.predict_proba(frame)[:, 1].tolist()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _servers.append(server)
    return f"http://127.0.0.1:{server.server_port}/score", in_form(X, form), fitted.predict


_servers: list[ThreadingHTTPServer] = []


def keras(form: str, folder: Path) -> tuple[Any, Any, Ask]:
    import os

    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras_ = pytest.importorskip("keras")
    frame = numbers()
    keras_.utils.set_random_seed(0)
    model = keras_.Sequential([
        keras_.layers.Input((frame.shape[1],)), keras_.layers.Rescaling(0.02),
        keras_.layers.Dense(8, activation="relu"), keras_.layers.Dense(1, activation="sigmoid"),
    ])  # fmt: skip
    model.compile(keras_.optimizers.Adam(0.02), "binary_crossentropy")
    values = frame.to_numpy(np.float32)
    model.fit(values, y.to_numpy(), epochs=20, verbose=0)

    def ask(rows: pd.DataFrame) -> Any:
        return model.predict(rows.to_numpy(np.float32), verbose=0)[:, 0] >= 0.5

    return model, values if form == "numpy" else frame, ask


def in_form(frame: pd.DataFrame, form: str) -> Any:
    if form == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    if form == "category":
        return frame.astype(dict.fromkeys([n for n in TEXT if n in frame], "category"))
    if form == "object":
        return frame.astype(dict.fromkeys([n for n in TEXT if n in frame], object))
    return frame


# The first form of each kind is asked by default.
KINDS: dict[Callable[[str, Path], tuple[Any, Any, Ask]], tuple[str, ...]] = {
    sklearn_pipeline: ("pandas", "object", "category", "polars"),
    forest_on_codes: ("numpy", "pandas", "polars"),
    hist_gradient_boosting: ("category",),
    calibrated_svc: ("pandas", "polars"),
    lightgbm: ("category", "numbers", "booster"),
    xgboost: ("category", "numbers"),
    catboost: ("pandas", "category"),
    onnx: ("pandas",),
    skops: ("pandas", "category"),
    torch: ("pandas", "numpy"),
    function: ("polars", "pandas", "labels", "category"),
    http: ("pandas", "polars", "category"),
    keras: ("numpy", "pandas"),
}


def cells() -> Iterator[Any]:
    for kind, forms in KINDS.items():
        for i, form in enumerate(forms):
            marks = [pytest.mark.slow] if i or kind is keras else []
            yield pytest.param(kind, form, marks=marks, id=f"{kind.__name__}-{form}")


def exports(result: waysout.Result, folder: Path, base: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every option as each export gives it, read back by pandas alone."""
    # A CSV file does not tell text from numbers; its user does.
    read: dict[str, Any] = {str(n): str for n in base if not pd.api.types.is_numeric_dtype(base[n])}
    written = result.to_csv(all_options=True, all_features=True)
    assert written is not None
    frame = result.to_frame(all_options=True, all_features=True)
    if not isinstance(frame, pd.DataFrame):
        frame = frame.to_pandas()
    frame.to_parquet(folder / "options.parquet")
    told = json.loads(result.to_json())
    return {
        "frame": frame,
        "csv": pd.read_csv(io.StringIO(written), dtype=read),
        "parquet": pd.read_parquet(folder / "options.parquet"),
        "json": pd.DataFrame([option["row"] for option in told["options"]]),
        "ways": pd.DataFrame([way["row"] for way in told["ways"]]),
    }


@contextmanager
def closing_servers() -> Iterator[None]:
    try:
        yield
    finally:
        while _servers:
            server = _servers.pop()
            server.shutdown()
            server.server_close()


@pytest.mark.parametrize(("kind", "form"), list(cells()))
def test_what_comes_out_is_approved(
    kind: Callable[[str, Path], tuple[Any, Any, Ask]], form: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    with closing_servers():
        model, data, ask = kind(form, tmp_path)
        names = list(getattr(data, "columns", [])) or None
        whole = X if names and "job" in names else numbers()
        base = coded() if kind is forest_on_codes else whole
        columns = list(base.columns)
        explainer = waysout.Explainer(model, data, features=None if names else columns)
        refused = np.flatnonzero(np.asarray(ask(base)).ravel() == 0)[:PEOPLE].tolist()
        results = explainer.batch(
            data[refused] if not hasattr(data, "iloc") else data.iloc[refused], oracle_rows=ROWS
        )
        assert sum(len(result.options) for result in results) > 0
        for result in results:
            if not result.options:
                continue
            for export, rows in exports(result, tmp_path, base).items():
                again = rows[columns].astype(base.dtypes)
                said = np.asarray(ask(again)).ravel().astype(int)
                assert said.all(), (export, rows[said == 0])
                assert (again["age"] == base["age"].iloc[refused[result.index]]).all()
