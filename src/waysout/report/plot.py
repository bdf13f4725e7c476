"""Pictures by matplotlib, which is loaded on use: one style for all, and a result's trade-offs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from waysout.domain.pick import pick
from waysout.domain.result import ResultData
from waysout.errors import InputError, MissingExtra, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED, BLUE = "#c0392b", "#1b4f8a"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "waysout",  # the same picture is always the same file
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # names are untrusted
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_CHANCE = "chance of a yes"
LABELS = {
    "proximity": "nearness (1: as things stand)",
    "sparsity": "number of changes",
    "probability": _CHANCE,
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the style of our pictures, or say what to install if matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("matplotlib", "bench") from None
    with mpl.rc_context(_STYLE):
        yield


def check_can_draw() -> None:
    """Raise if matplotlib is missing, before any work is done."""
    with plot_style():
        pass


def to_svg(figure: Figure) -> bytes:
    """Return a picture as a file: the same bytes each time, without random ids or a date."""
    out = io.BytesIO()
    with plot_style(), warnings.catch_warnings():
        # Letters stay text in the file, for the viewer's own fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def plot(
    result: ResultData, x: str = "proximity", y: str = "sparsity", ax: Axes | None = None
) -> Axes:
    """Draw the options by two of their scores, coloured by chance, the shortlist ringed.

    Without ``ax``, the axes have a figure of their own that pyplot does not know, so nothing is
    shown or left behind except in a notebook, where the returned axes display themselves.
    """
    for name in (x, y):
        if name not in LABELS:
            raise InputError(unknown("score", name, LABELS))
    check_can_draw()
    from matplotlib.ticker import MaxNLocator

    ax = ax or _own_axes()
    first = pick(result)
    known = [option.row for option in result.options]
    options = [*result.options, *(way for way in first if way.row not in known)]
    dots = ax.scatter([getattr(o, x) for o in options], [getattr(o, y) for o in options],
                      c=[o.probability for o in options], vmin=0, vmax=1,
                      cmap="viridis_r", s=28, alpha=0.75, linewidths=0)  # fmt: skip
    ax.scatter(
        [getattr(o, x) for o in first], [getattr(o, y) for o in first], s=110, facecolors="none",
        edgecolors=RED, linewidths=1.6, label="to read first",
    )  # fmt: skip
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        axis.set_label_text(LABELS[name])
        if name == "sparsity":
            axis.set_major_locator(MaxNLocator(integer=True))
    if options:
        ax.legend(loc="best", frameon=False)
    if options and not result.settings.get("labels_only"):
        ax.get_figure(root=True).colorbar(dots, ax=ax, label=_CHANCE)  # type: ignore[union-attr]
    return ax


def _own_axes() -> Axes:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    class ShownAxes(Axes):
        """Axes that a notebook displays although pyplot does not know them."""

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.get_figure(root=True).savefig(out, format="png", dpi=110)  # type: ignore[union-attr]
            return out.getvalue()

    figure = Figure(figsize=(6.4, 4.0), layout="constrained", facecolor="white")
    return figure.add_subplot(axes_class=ShownAxes)
