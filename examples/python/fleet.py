"""A fleet of QLC drives over five years: who survives, what is to be rebuilt, and what a read
striped over ten drives takes.

    python3 examples/python/fleet.py [DRIVES [FOLDER]]

In FOLDER the lives are kept, so that a run that was stopped goes on. What came of 1500
drives is in docs/results/fleet.md. How much drives are written, and how their flash differs,
is assumed.
"""

import sys

import ssdkit
from ssdkit import LogNormal, Normal

DRIVE = "mem:qlc,groups=1,pus=2,pages=48,size=32M,spare=0.2,store=none,endurance_cliff=false"
MIXED = {"rw": "randrw", "read_percent": 70, "qd": 4}


def main(drives: int, folder: str | None) -> None:
    fleet = ssdkit.fleet(
        drives,
        drive=DRIVE,
        years=5,
        writes=LogNormal(0.15, 0.8),
        errors=LogNormal(1.0, 0.4),
        temperature=Normal(40, 5),
        workloads={"mixed": (3, MIXED), "hot": (1, {**MIXED, "hot": "20:80"})},
        acceleration=20,
        out=folder,
    )
    print(fleet)
    print("\nAlive at the end of each year, and the interval of 95 %:")
    for workload in ("mixed", "hot"):
        curve = fleet.survival(by="workload").to_pandas()
        curve = curve[curve.workload == workload]
        for year in range(1, 6):
            last = curve[curve.years <= year].iloc[-1]
            print(
                f"  {workload:5} {year}: {last.survival:.4f}  {last.lower:.4f} to {last.upper:.4f}"
            )
    print("\nTo be rebuilt, of drives of 3.84 TB in groups of 8 and 2, at 100 MB/s, by year:")
    load = fleet.rebuild(capacity=3.84e12, data=8, parity=2).to_pandas()
    for year, months in load.groupby((load.month - 1) // 12 + 1):
        print(
            f"  {year}: {months.failures.sum()} drives, {months.written_bytes.sum() / 1e15:.3f} PB "
            f"written, {months.read_bytes.sum() / 1e15:.3f} PB read; in the worst month "
            f"{months.degraded.max():.3%} of the groups are being rebuilt, {months.most_at_once.max()} "
            "at once at most"
        )
    print("\nA read of one drive; of all of 8; of 10, when 8 have answered (us):")
    for waits, n in (("8 of 8", 8), ("8 of 10", 10)):
        table = fleet.striped(8, n, percentiles=(50, 99, 99.9, 99.99)).to_pandas()
        for year in (0.25, 2.5, 5.0):
            for row in table[table.years == year].itertuples():
                print(
                    f"  {waits:7} year {year:<4} p{row.percentile:<5g} one {row.one_ns / 1e3:8.0f}  "
                    f"striped {row.striped_ns / 1e3:8.0f}  ({row.alive} alive)"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2] if len(sys.argv) > 2 else None)
