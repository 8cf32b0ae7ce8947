#!/usr/bin/env bash
# A file of real storage, measured by `ssdkit bench` and by fio.
#
# Writes a file whole (1 GiB, in DIR, which must be on the disk to be measured),
# then runs by turns, in an order that goes round: ssdkit, fio twice (the second
# is the yardstick: what fio says beside fio), and fio's other engines. Prints for
# each case the medians of ROUNDS rounds, and of ssdkit / fio and fio / fio the
# median of the rounds' ratios, in brackets the interval in which that of endless
# rounds lies with a probability of 95 % (order statistics; of less than 6 rounds
# the least and the greatest). `within`: all of the interval is within 5 %. `NOT`:
# all of it is outside. Else the disk is too noisy to tell: `median within` where
# the median is within 5 %, `open` where it is not.
#
#   DIR=/mnt/disk ROUNDS=15 MS_EACH=1000 benches/fio.sh [CASE...]
#
# Needs fio and python3; SSDKIT names the binary. A case is a line of `cases`.
set -euo pipefail

SSDKIT=$(realpath "${SSDKIT:-target/release/ssdkit}")
JOB=$(realpath benches/fio/mixed.fio)
ROUNDS=${ROUNDS:-15}
export MS_EACH=${MS_EACH:-1000}

# Name; what is done; requests outstanding; requests a second, 0 for a closed loop.
cases='
read-1|randread|1|0
read-32|randread|32|0
write-1|randwrite|1|0
write-32|randwrite|32|0
mix-1|randrw|1|0
mix-32|randrw|32|0
read-rate|randread|32|2000
write-rate|randwrite|32|2000
job|randrw|32|0
'
for case in "$@"; do
  if [[ $case = *[^a-z0-9-]* || $cases != *$'\n'"$case|"* ]]; then
    echo "there is no case $case; there are:$(cut -s -d '|' -f 1 <<<"$cases" | paste -sd ' ' | sed 's/^/ /')" >&2
    exit 2
  fi
done

DIR=$(mktemp -d "$(realpath "${DIR:-.}")/beside-fio.XXXXXX")
trap 'rm -rf "$DIR"' EXIT
cd "$DIR"
FILE=$DIR/file

# IOPS, mean and p99 in us of one run, as a line of `$DIR/runs`.
note() { # case round who; the report is in out.json
  python3 - "$@" <<'PY' >>runs
import json, sys
case, number, who = sys.argv[1:]
out = json.load(open("out.json"))
if "jobs" in out and "fio version" in out:
    job = out["jobs"][0]
    # Under unified_rw_reporting all is under one key; `ssdkit fio` has reads and writes.
    parts = [job[kind] for kind in ("mixed", "read", "write") if job.get(kind, {}).get("total_ios")]
    counts = [part["total_ios"] for part in parts]
    iops = sum(part["iops"] for part in parts)
    mean = sum(n * part["lat_ns"]["mean"] for n, part in zip(counts, parts)) / sum(counts)
    # Two kinds: that of the reads, which are most of the mix.
    key = "lat_ns" if "percentile" in parts[0]["lat_ns"] else "clat_ns"
    p99 = parts[0][key]["percentile"]["99.000000"]
else:
    # fio counts from when a request is sent, and so does this queue; the report's own
    # latency counts from when a request was due, which is another thing at a rate.
    sent = out["open_loop"] and out["block_layer"]["dispatch"][0]["latency_ns"]
    latency = sent or out["latency_ns"]
    iops, mean, p99 = out["iops"], latency["mean"], latency["p99"]
print(case, number, who, iops, mean / 1e3, p99 / 1e3)
PY
}

theirs() { # engine kind depth rate seed
  local rate=()
  [ "$4" = 0 ] || rate=(--rate_iops="$4" --rate_process=linear)
  fio --name=r --filename="$FILE" --ioengine="$1" --direct=1 --rw="$2" --rwmixread=70 --bs=4k \
    --iodepth="$3" --norandommap --randseed="$5" --time_based --runtime="${MS_EACH}ms" "${rate[@]}" \
    --unified_rw_reporting=mixed --lat_percentiles=1 --clat_percentiles=0 \
    --output-format=json --output=out.json >/dev/null
}

ours() { # kind depth rate seed
  local more=()
  [ "$1" != randrw ] || more+=(--read-percent 70)
  [ "$3" = 0 ] || more+=(--rate "$3" --arrivals fixed)
  "$SSDKIT" bench "$FILE" --rw "$1" --bs 4k --qd "$2" --seed "$4" \
    --time "${MS_EACH}ms" "${more[@]}" --destroy --json >out.json
}

run() { # case kind depth rate round who
  case $6 in
    ssdkit) ours "$2" "$3" "$4" "$5" ;;
    # Seeds differ, so that no run finds the addresses of the one before.
    fio) theirs io_uring "$2" "$3" "$4" $((1000 + $5)) ;;
    again) theirs io_uring "$2" "$3" "$4" $((2000 + $5)) ;;
    libaio) theirs libaio "$2" "$3" "$4" $((3000 + $5)) ;;
    psync) theirs psync "$2" "$3" "$4" $((4000 + $5)) ;;
  esac
  note "$1" "$5" "$6"
}

# A job file, run by both.
run_job() { # round who
  case $2 in
    ssdkit) FILE=$FILE "$SSDKIT" fio "$JOB" --destroy --json >out.json 2>/dev/null ;;
    *) FILE=$FILE fio "$JOB" --output-format=json --output=out.json >/dev/null ;;
  esac
  note job "$1" "$2"
}

dd if=/dev/urandom of=file bs=1M count=1024 oflag=direct conv=fsync status=none
: >runs
while IFS='|' read -r name kind depth rate <&3; do
  [ -n "$name" ] || continue
  [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
  who=(ssdkit fio again)
  [ "$name" = job ] || who+=(libaio)
  [ "$depth" != 1 ] || who+=(psync)
  for round in $(seq "$ROUNDS"); do
    for i in "${!who[@]}"; do
      one=${who[$(((i + round) % ${#who[@]}))]}
      if [ "$name" = job ]; then run_job "$round" "$one"
      else run "$name" "$kind" "$depth" "$rate" "$round" "$one"; fi
    done
  done
done 3<<<"$cases"

python3 - <<'PY'
from math import comb
from statistics import median

runs = {}
for line in open("runs"):
    case, number, who, *figures = line.split()
    runs.setdefault(case, {}).setdefault(who, {})[number] = [float(f) for f in figures]

# Of n values in order, how many to leave out at each end.
def left_out(n):
    k, missed = 0, 2 * 0.5**n
    while missed <= 0.05:
        k += 1
        missed += 2 * comb(n, k) * 0.5**n
    return max(k - 1, 0)

print("| case | | ssdkit | fio | ssdkit / fio | fio / fio | | libaio | psync |")
print("|---|---|---|---|---|---|---|---|---|")
for case, who in runs.items():
    for i, what in enumerate(["IOPS", "mean, us", "p99, us"]):
        of = lambda name: [who[name][n][i] for n in sorted(who[name])]
        def ratio(above, below):
            every = sorted(a / b for a, b in zip(of(above), of(below)))
            k = left_out(len(every))
            return median(every), every[k], every[-1 - k]
        mid, low, high = beside = ratio("ssdkit", "fio")
        if low >= 0.95 and high <= 1.05:
            verdict = "within"
        elif low > 1.05 or high < 0.95:
            verdict = "NOT"
        else:
            verdict = "median within" if abs(mid - 1) <= 0.05 else "open"
        tell = lambda r: f"{r[0]:.3f} ({r[1]:.2f} to {r[2]:.2f})"
        shown = lambda name: f"{median(of(name)):.0f}" if name in who else ""
        print(f"| {case if i == 0 else ''} | {what} | {shown('ssdkit')} | {shown('fio')} "
              f"| {tell(beside)} | {tell(ratio('again', 'fio'))} | {verdict} "
              f"| {shown('libaio')} | {shown('psync')} |")
PY
