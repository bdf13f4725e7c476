"""A table of results before it is rendered: our figures, and the paper's where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field

NOT_RUN = "not run"
NOT_DEFINED = "n/a"

Number = float | str | None


@dataclass(frozen=True)
class Figure:
    """One figure: ours and, if there is one, the paper's; None leaves the cell empty.

    ``digits`` are those after the point, or the significant ones where ``general`` is set, as for
    p-values. ``signed`` writes a plus before positive values. ``printed`` is the paper's figure
    verbatim, so that no digit is dropped or added.
    """

    ours: Number
    paper: Number = None
    digits: int = 2
    signed: bool = False
    general: bool = False
    printed: str = field(default="", compare=False)

    def write(self, value: Number) -> str:
        """Return a value in this figure's format.

        >>> Figure(None, digits=1, signed=True).write(-0.04), Figure(None).write("not run")
        ('0.0', 'not run')
        """
        if value is None or isinstance(value, str):
            return value or ""
        if self.general:
            return f"{value:#.{self.digits}g}"
        # Adding 0 turns a negative zero, which rounding can give, into a plain one.
        rounded = round(value, self.digits) + 0.0
        plus = "+" if self.signed and rounded > 0 else ""
        return f"{plus}{rounded:.{self.digits}f}"

    @property
    def ours_text(self) -> str:
        """Our figure, formatted."""
        return self.write(self.ours)

    @property
    def paper_text(self) -> str:
        """The paper's figure, as printed there or formatted."""
        return self.printed or self.write(self.paper)


@dataclass(frozen=True)
class TableLine:
    """One line: its labels, its figures, and the ids of the arms they come from."""

    labels: tuple[str, ...]
    figures: tuple[Figure, ...]
    runs: str = ""

    @property
    def was_run(self) -> bool:
        """Whether it has any search: the first figure counts them."""
        return self.figures[0].ours != NOT_RUN

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any of its figures."""
        return any(figure.paper is not None for figure in self.figures)


@dataclass(frozen=True)
class ResultTable:
    """Lines under column headings. ``about`` is what was measured, ``command`` prints the table."""

    name: str
    title: str
    about: tuple[str, ...]
    label_columns: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    notes: tuple[str, ...] = ()
    command: str = ""

    @property
    def has_paper(self) -> bool:
        """Whether the paper has figures for any line."""
        return any(line.has_paper for line in self.lines)

    @property
    def has_runs(self) -> bool:
        """Whether any line names its arms."""
        return any(line.runs for line in self.lines)
