"""A solid-state drive in software.

>>> import ssdkit
>>> report = ssdkit.bench("mem:tlc,size=64M", rw="randread", qd=8, precondition="seq", ios=5000)
>>> report.latency.n
5000
"""

from ssdkit._core import DriveError, Error, UsageError, __version__
from ssdkit.commands import (
    bench,
    create,
    explain,
    explain_replay,
    info,
    profile,
    profiles,
    replay,
    snapshot,
    study,
    test,
    twin,
)
from ssdkit.comparison import Comparison, compare
from ssdkit.completions import Completions
from ssdkit.drive import Counters, Drive, Op
from ssdkit.explanation import Explanation
from ssdkit.fleets import Fleet, LogNormal, Normal, fleet
from ssdkit.histogram import Histogram
from ssdkit.keys import KeyValue
from ssdkit.report import Report
from ssdkit.sweeps import Knee, LatinHypercube, Range, Sobol, Sweep, sweep
from ssdkit.table import Table
from ssdkit.theory import formula
from ssdkit.twins import Parameter, Twin

# Of a run that failed it is set to what was measured.
Error.report = None

__all__ = [
    "Comparison",
    "Completions",
    "Counters",
    "Drive",
    "DriveError",
    "Error",
    "Explanation",
    "Fleet",
    "Histogram",
    "KeyValue",
    "Knee",
    "LatinHypercube",
    "LogNormal",
    "Normal",
    "Op",
    "Parameter",
    "Range",
    "Report",
    "Sobol",
    "Sweep",
    "Table",
    "Twin",
    "UsageError",
    "__version__",
    "bench",
    "compare",
    "create",
    "explain",
    "explain_replay",
    "fleet",
    "formula",
    "info",
    "profile",
    "profiles",
    "replay",
    "snapshot",
    "study",
    "sweep",
    "test",
    "twin",
]
