#!/usr/bin/env bash
# What a second shard on a second core brings, by turns.
#
# Prints, for random reads and writes of 4 KiB at depth 32 a core, thousands of
# requests a second and ns of processor each: one shard on one core; two processes
# of one shard each on two cores at the same time, which is what the machine gives;
# and two shards on two cores. Medians of TURNS turns, their spread, and the ratios
# to one shard. Needs two processors that nobody else uses. SSDKIT names the binary,
# PREFIX what runs it (as `chrt -r 1`), SIZE the drive, SECONDS_EACH a measurement.
set -euo pipefail

SSDKIT=$(realpath "${SSDKIT:-target/release/ssdkit}")
TURNS=${TURNS:-5}
SIZE=${SIZE:-1G}
SECONDS_EACH=${SECONDS_EACH:-1}
PREFIX=${PREFIX:-}
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT

bench() { # to drive rw others
  local to=$1 drive=$2 rw=$3
  shift 3
  "$@" "$SSDKIT" bench "mem:null,size=$SIZE$drive" --rw "$rw" --qd 32 --precondition seq \
    --clock real --time "${SECONDS_EACH}s" --cores "$cores" $pin --json >"$DIR/$to"
}

for rw in randread randwrite; do
  for turn in $(seq "$TURNS"); do
    cores=1 pin=
    bench one.$turn "" $rw $PREFIX taskset -c $((turn % 2))
    bench left.$turn "" $rw $PREFIX taskset -c 0 & other=$!
    bench right.$turn "" $rw $PREFIX taskset -c 1
    wait $other
    cores=2 pin=--pin
    bench two.$turn ,shards=2 $rw $PREFIX
  done
  python3 - "$DIR" $rw "$TURNS" <<'PY'
import json, statistics, sys
dir, rw, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
def figures(who, key):
    return [key(json.load(open(f"{dir}/{who}.{turn}"))) for turn in range(1, turns + 1)]
rate, cost = lambda d: d["iops"] / 1e3, lambda d: d["cpu"]["per_io_ns"]
rates = {who: figures(who, rate) for who in ["one", "left", "right", "two"]}
rates["pair"] = [a + b for a, b in zip(rates["left"], rates["right"])]
one = statistics.median(rates["one"])
for who, name in [("one", "one shard, one core"), ("pair", "two processes"), ("two", "two shards, two cores")]:
    all = rates[who]
    costs = figures("left" if who == "pair" else who, cost)
    print(f"{rw:10} {name:22} {statistics.median(all):7.0f} k/s ({min(all):.0f} to {max(all):.0f})"
          f" {statistics.median(costs):6.0f} ns {statistics.median(all) / one:6.2f}")
PY
done
