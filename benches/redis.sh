#!/usr/bin/env bash
# The Redis server with durable replies against its unsafe mode, at several times of a write.
#
# With `--sync always` a command is executed without waiting and its reply waits until all is
# durable that it tells of; with `--sync no` nothing waits, and a cut takes what it takes.
# Prints, for each time of a write and each load, the medians of ROUNDS runs of each, by turns,
# in thousands of requests a second, their ratio and its range. Needs redis-benchmark; SSDKIT
# names the binary. DRIVE is a drive's name without its time of a write; LATENCIES, CLIENTS,
# DEPTHS, LOADS and REQUESTS are lists and numbers as below.
set -euo pipefail

SSDKIT=$(realpath "${SSDKIT:-target/release/ssdkit}")
ROUNDS=${ROUNDS:-5}
REQUESTS=${REQUESTS:-100000}
LATENCIES=${LATENCIES:-10 50 100}
DEPTHS=${DEPTHS:-1 16}
LOADS=${LOADS:-set get mix}
CLIENTS=${CLIENTS:-50}
DRIVE=${DRIVE:-mem:znand,size=1G}
PAGES=${PAGES:-}
DIR=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -KILL $server 2>/dev/null; rm -rf "$DIR"' EXIT

start() { # latency sync
  "$SSDKIT" serve "$DRIVE,program=$1us" --redis "$DIR/s" --sync "$2" $PAGES >"$DIR/log" 2>&1 &
  server=$!
  for _ in $(seq 250); do
    [ "$(redis-cli -s "$DIR/s" ping 2>/dev/null)" = PONG ] && break
    sleep 0.02
  done
  # Keys that are read are there.
  load "$REQUESTS" 16 set >/dev/null
}

stop() {
  kill -TERM $server 2>/dev/null || true
  wait $server 2>/dev/null || true
  server=
}

# Requests a second of one load. A mix is half of the clients with SET and half with GET, at once.
load() { # requests depth what
  one() { # clients requests depth what
    redis-benchmark -s "$DIR/s" -c "$1" -n "$2" -P "$3" -r 10000 -d 100 --csv -t "$4" |
      tail -1 | cut -d, -f2 | tr -d '"'
  }
  if [ "$3" != mix ]; then
    one "$CLIENTS" "$1" "$2" "$3"
    return
  fi
  one $((CLIENTS / 2)) $(($1 / 2)) "$2" set >"$DIR/set" &
  local other=$!
  one $((CLIENTS / 2)) $(($1 / 2)) "$2" get >"$DIR/get"
  wait $other
  # Until the slower of the two has ended.
  cat "$DIR/set" "$DIR/get" | sort -n | head -1 | awk '{print 2 * $1}'
}

median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }

printf '%-8s %5s %5s %10s %10s %7s  %s\n' write load depth always no ratio 'least to most'
for latency in $LATENCIES; do
  for what in $LOADS; do
    for depth in $DEPTHS; do
      rm -f "$DIR"/*.runs
      for _ in $(seq "$ROUNDS"); do
        for sync in always no; do
          start "$latency" $sync
          load "$REQUESTS" "$depth" "$what" >>"$DIR/$sync.runs"
          stop
        done
      done
      always=$(median <"$DIR/always.runs") no=$(median <"$DIR/no.runs")
      range=$(paste "$DIR/always.runs" "$DIR/no.runs" | awk '{print $1 / $2}' | sort -n |
        awk 'NR == 1 {least = $1} {most = $1} END {printf "%.2f to %.2f", least, most}')
      awk -v l="$latency us" -v w="$what" -v d="$depth" -v a="$always" -v n="$no" -v r="$range" \
        'BEGIN {printf "%-8s %5s %5d %8.1f k %8.1f k %7.2f  %s\n", l, w, d, a / 1e3, n / 1e3, a / n, r}'
    done
  done
done
