#!/usr/bin/env bash
# YCSB on values by key (target=kv) and on RocksDB over blocks, on the same
# emulated flash, by turns. SSDKIT and BESIDE name the two programs; VALUES,
# WORKLOADS, RECORDS, OPS, CACHE (RocksDB's; kv has none), TURNS and THREADS may
# be given.
set -euo pipefail

ssdkit=${SSDKIT:-target/release/ssdkit}
beside=${BESIDE:-target/release/rocksdb-beside}
records=${RECORDS:-100000}
ops=${OPS:-200000}
cache=${CACHE:-40M}
drive=mem:znand,planes=2,pages=64

# The first number of a key in JSON that has a key a line.
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" | head -1; }
# Who, and its report: operations a second, and bytes programmed for one of an update.
told() {
  awk -v who="$1" -v rate="$(number ops_per_second <<<"$2")" -v value="$value" \
    -v programmed="$(number programmed <<<"$2")" \
    -v updates="$(sed -n '/"update"/,/}/p' <<<"$2" | number n)" 'BEGIN {
      printf "%s: %.0f ops/s", who, rate
      if (updates > 0) printf ", %.2f times written", programmed * 4096 / (updates * value)
      print "" }'
}

for value in ${VALUES:-100 1000 4096}; do
  for workload in ${WORKLOADS:-A C}; do
    for turn in $(seq "${TURNS:-3}"); do
      about="value $value, $workload, turn $turn, load $(cut -d' ' -f1 /proc/loadavg)"
      told "$about, kv" "$(taskset -c 0,1 "$ssdkit" ycsb "$drive,target=kv" --workload "$workload" \
        --value "$value" --records "$records" --ops "$ops" --clients 32 --clock real --json)"
      for n in ${THREADS:-8 32}; do
        told "$about, RocksDB, $n threads" "$("$beside" "$drive" --ycsb "$workload" \
          --value "$value" --records "$records" --ops "$ops" --cache "$cache" --threads "$n" --json)"
      done
    done
  done
done
