"""A figure of a report in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from easybalance_sim.api.inputs import PathLike
from easybalance_sim.files import replacing

if TYPE_CHECKING:
    import pandas as pd

    from easybalance_sim.report.content import Figure


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Drawn:
    """figure: chart, title and words."""

    figure: Figure

    def __repr__(self) -> str:
        return f"<Drawn: {self.figure.name}, {self.figure.conclusion}>"

    def _repr_svg_(self) -> str:
        from easybalance_sim.report.canvas import svg_of

        return svg_of(self.figure.chart, self.figure.name)

    @property
    def title(self) -> str:
        """Over the figure."""
        return self.figure.title

    @property
    def conclusion(self) -> str:
        """What to conclude from it."""
        return self.figure.conclusion

    def table(self) -> pd.DataFrame:
        """All that is drawn."""
        import pandas as pd

        data = self.figure.chart.table()
        return pd.DataFrame(data.rows, columns=list(data.columns))

    def save(self, path: PathLike) -> Path:
        """Write it as .svg, .png or .csv. Raises `UsageError` for another ending."""
        from easybalance_sim.report.figure_files import figure_bytes

        target = Path(path)
        with replacing(target) as temporary:
            temporary.write_bytes(figure_bytes(self.figure, target.suffix.removeprefix(".")))
        return target
