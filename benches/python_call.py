"""A call of the package beside what the command takes inside: by turns, medians in us.

    python benches/python_call.py target/release/ssdkit

"Inside" is the command's time from its start to its end, less that of one whose options are
refused.
"""

import os
import sys
from statistics import median
from time import perf_counter_ns

import ssdkit

ROUNDS = 700


def spawned(binary: str, arguments: list[str]) -> float:
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
    began = perf_counter_ns()
    process = os.posix_spawn(binary, [binary, *arguments], os.environ, file_actions=nowhere)
    os.waitpid(process, 0)
    return (perf_counter_ns() - began) / 1e3


def called(drive: str, options: dict[str, str]) -> float:
    began = perf_counter_ns()
    ssdkit.bench(drive, **options)
    return (perf_counter_ns() - began) / 1e3


def main(binary: str) -> None:
    for drive in ("null:", "mem:null,size=16M", "mem:ref,size=16M"):
        options = {"rw": "randread", "ios": "1"}
        if drive != "null:":
            options["precondition"] = "none"
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        refused, whole, call = [], [], []
        for _ in range(ROUNDS):
            refused.append(spawned(binary, ["bench", "--no-such-option"]))
            whole.append(spawned(binary, ["bench", drive, "--json", *words]))
            call.append(called(drive, options))
        inside = median(whole) - median(refused)
        print(f"{drive:20} inside {inside:7.0f}  call {median(call):7.0f}  beyond {median(call) - inside:7.0f}")


main(sys.argv[1])
