#!/usr/bin/env bash
# NBD on a Unix socket against nbdkit's null plugin, 4 KiB random reads.
#
# Prints, for each client and depth, the median of ROUNDS interleaved runs of
# ssdkit and of the best of three nbdkit set-ups, in thousands of requests a
# second, and the ratio. Needs fio and nbdkit; SSDKIT names the binary.
set -euo pipefail

SSDKIT=$(realpath "${SSDKIT:-target/release/ssdkit}")
ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-2}
DIR=$(mktemp -d)
cd "$DIR"
server=
trap '[ -z "$server" ] || kill -KILL $server 2>/dev/null; rm -rf "$DIR"' EXIT

start() {
  rm -f "$DIR/s"
  case $1 in
    ssdkit) "$SSDKIT" serve mem:null,size=1G,store=memory --nbd "$DIR/s" >/dev/null 2>&1 & ;;
    nbdkit) nbdkit -f -U "$DIR/s" null 1G >/dev/null 2>&1 & ;;
    nbdkit-t1) nbdkit -f -t 1 -U "$DIR/s" null 1G >/dev/null 2>&1 & ;;
    nbdkit-pinned) taskset -c 0 nbdkit -f -U "$DIR/s" null 1G >/dev/null 2>&1 & ;;
  esac
  server=$!
  for _ in $(seq 100); do [ -S "$DIR/s" ] && return; sleep 0.02; done
}

stop() {
  kill -TERM $server 2>/dev/null || true
  wait $server 2>/dev/null || true
  server=
}

# Thousands of requests a second of one run.
measure() { # client depth
  case $1 in
    fio)
      fio --name=r --ioengine=nbd --uri="nbd+unix:///?socket=$DIR/s" --rw=randread --bs=4k \
        --iodepth="$2" --size=1G --time_based --runtime="$SECONDS_EACH" --output-format=json --output="$DIR/fio.json" >/dev/null
      python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["jobs"][0]["read"]["iops"]/1e3)' "$DIR/fio.json" ;;
    ssdkit)
      "$SSDKIT" bench "nbd:$DIR/s" --rw randread --bs 4k --qd "$2" --time "${SECONDS_EACH}s" --json \
        | python3 -c 'import json,sys; print(json.load(sys.stdin)["iops"]/1e3)' ;;
  esac
}

median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }

printf '%-7s %6s %10s %10s %7s  %s\n' client depth ssdkit nbdkit ratio "nbdkit's best"
for client in fio ssdkit; do
  for depth in 1 32 128; do
    rm -f "$DIR"/*.runs
    for _ in $(seq "$ROUNDS"); do
      for who in ssdkit nbdkit nbdkit-t1 nbdkit-pinned; do
        start $who
        measure $client $depth >>"$DIR/$who.runs"
        stop
      done
    done
    ours=$(median <"$DIR/ssdkit.runs")
    best=0 name=
    for who in nbdkit nbdkit-t1 nbdkit-pinned; do
      theirs=$(median <"$DIR/$who.runs")
      if awk "BEGIN {exit !($theirs > $best)}"; then best=$theirs name=$who; fi
    done
    awk -v c=$client -v d=$depth -v o="$ours" -v b="$best" -v n="$name" \
      'BEGIN {printf "%-7s %6d %10.1f %10.1f %7.2f  %s\n", c, d, o, b, o / b, n}'
  done
done
