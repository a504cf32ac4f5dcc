"""Where requests come from: files of real ones (`readers`), or streams that are drawn (`patterns`).

One module in `readers` is one file layout, found by what the file holds; one in `patterns` is one way in which requests
come over time, found by its name.
"""

from __future__ import annotations

from easybalance_sim.simulate.serving.arrivals.reading import Reading, load_arrivals, load_tenants, named_sources
from easybalance_sim.simulate.serving.arrivals.tenants import generate, merged

__all__ = ["Reading", "generate", "load_arrivals", "load_tenants", "merged", "named_sources"]
