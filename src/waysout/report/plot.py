"""The trade-offs between options as a picture, by matplotlib, which is loaded on use."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData
from waysout.errors import InputError, MissingExtra, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHANCE = "chance of a yes"
LABELS = {
    "proximity": "nearness (1: as things stand)",
    "sparsity": "number of changes",
    "probability": _CHANCE,
}


def plot(
    result: ResultData, x: str = "proximity", y: str = "sparsity", ax: Axes | None = None
) -> Axes:
    """Draw the options by two of their scores, coloured by chance, the shortlist ringed.

    Without ``ax``, the axes have a figure of their own that pyplot does not know of: nothing is
    shown or left behind but in a notebook, where the axes returned show themselves.
    """
    for name in (x, y):
        if name not in LABELS:
            raise InputError(unknown("score", name, LABELS))
    try:
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "bench") from None
    ax = ax or _own_axes()
    options = result.options
    dots = ax.scatter(*_places(options, x, y), c=[o.probability for o in options], vmin=0, vmax=1,
                      cmap="viridis_r", s=28, alpha=0.75, linewidths=0)  # fmt: skip
    first = pick(result) if options else ()
    ax.scatter(*_places(first, x, y), s=110, facecolors="none", edgecolors="#b03a2e",
               linewidths=1.6, label="to read first")  # fmt: skip
    ax.set_xlabel(LABELS[x])
    ax.set_ylabel(LABELS[y])
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        if name == "sparsity":
            axis.set_major_locator(MaxNLocator(integer=True))
    if options:
        ax.legend(loc="best", frameon=False)
    if options and not result.settings.get("labels_only"):
        ax.get_figure(root=True).colorbar(dots, ax=ax, label=_CHANCE)  # type: ignore[union-attr]
    return ax


def _places(options: Sequence[Option], x: str, y: str) -> tuple[list[float], list[float]]:
    return [getattr(o, x) for o in options], [getattr(o, y) for o in options]


def _own_axes() -> Axes:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    class ShownAxes(Axes):
        """Axes that a notebook shows, though pyplot does not know them."""

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.get_figure(root=True).savefig(out, format="png", dpi=110)  # type: ignore[union-attr]
            return out.getvalue()

    figure = Figure(figsize=(6.4, 4.0), layout="constrained", facecolor="white")
    return figure.add_subplot(axes_class=ShownAxes)
