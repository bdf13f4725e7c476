"""Oracles: trained models, asked in batches of typed rows.

How a model becomes an oracle:

1. `load.load_model` reads a model file that `file_trial` found to do no harm; each kind of model
   has a module of its own (`lightgbm`, `xgboost`, `catboost`, `onnx`, `torch`, `keras`,
   `estimators`), which is imported on use.
2. `adapt.as_oracle` asks that module for an `adapter.Adapter`: how to call the model, and the
   layouts (`inputs.InputLayout`) in which it may want its rows; `like` makes one of a frame.
3. Where several layouts are possible, `layout_trial` asks in each and finds the one that fits.
4. `answers.Reader` turns what the model returns into a probability and a decision for each row.
5. `probe.probe` tries the oracle before anything is spent; `cache.CachedOracle` never asks a row
   twice.

`certify` opens models made of trees (`moves`) to prove how near a way out can be.
"""
