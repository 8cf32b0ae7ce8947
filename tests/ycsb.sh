#!/usr/bin/env bash
# The real YCSB client (Java) against the real server: loads records and runs
# workloads A to F, and the paper's, over a drive in memory. Every operation must
# succeed, and what is read must be what was written ("dataintegrity").
#
#   tests/ycsb.sh [RECORDS] [OPERATIONS]     default 20000 and 40000
#
# SSDKIT names the binary. Needs a JDK, Maven and a registry of Java packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
SSDKIT=$(realpath "${SSDKIT:?set SSDKIT to the ssdkit binary}")
records=${1:-20000} operations=${2:-40000} threads=8 port=${PORT:-16379}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT

mvn -q -B -f "$here/ycsb/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib"
javac -cp "$work/lib/*" -d "$work" "$here/ycsb/RedisBinding.java"

# Runs one phase, load or t, of a workload: PHASE NAME [PROPERTIES...]
ycsb() {
  local phase=$1 name=$2
  shift 2
  java -cp "$work:$work/lib/*" site.ycsb.Client "-$phase" -db RedisBinding -threads $threads \
    -p workload=site.ycsb.workloads.CoreWorkload -p redis.port="$port" \
    -p recordcount="$records" -p operationcount="$operations" \
    -p fieldlengthdistribution=constant -p dataintegrity=true "$@" >"$work/$name.txt" 2>"$work/$name.err" \
    || { cat "$work/$name.err"; exit 1; }
  if grep 'Return=' "$work/$name.txt" | grep -v 'Return=OK,' \
    || grep -i 'exception' "$work/$name.err"; then
    echo "workload $name: not clean" >&2
    exit 1
  fi
  awk -F', ' -v name="$name" '
    /\[OVERALL\], Throughput/ { rate = $3 }
    /Return=OK/ { gsub(/[][]/, "", $1); done = done sprintf(" %s %d", tolower($1), $3) }
    END { printf "%-6s %8.0f ops/s  %s\n", name, rate, done }' "$work/$name.txt"
}

serve() {
  "$SSDKIT" serve "mem:null,size=2G" --redis "127.0.0.1:$port" >"$work/server.txt" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  cat "$work/server.txt"
  exit 1
}

serve
ycsb load load
for w in "A 0.5 0.5 0 0 0 zipfian" "B 0.95 0.05 0 0 0 zipfian" "C 1 0 0 0 0 zipfian" \
  "F 0.5 0 0 0 0.5 zipfian" "paper 0.75 0.25 0 0 0 uniform" \
  "D 0.95 0 0 0.05 0 latest" "E 0 0 0.95 0.05 0 zipfian"; do
  read -r name reads updates scans inserts rmw distribution <<<"$w"
  ycsb t "$name" -p readproportion="$reads" -p updateproportion="$updates" \
    -p scanproportion="$scans" -p insertproportion="$inserts" \
    -p readmodifywriteproportion="$rmw" -p requestdistribution="$distribution" \
    -p maxscanlength=20
done
echo "the YCSB client ran clean"
