#!/usr/bin/env bash
# YCSB on ssdkit's key-value store over a log on the host and over batched
# writes, and on RocksDB, on the same emulated drive with the same cache, by
# turns. SSDKIT and BESIDE name the two programs; RECORDS, OPS, PERCENT, TURNS
# and THREADS may be given, THREADS as a list.
set -euo pipefail

ssdkit=${SSDKIT:-target/release/ssdkit}
beside=${BESIDE:-target/release/rocksdb-beside}
records=${RECORDS:-100000}
ops=${OPS:-200000}
percent=${PERCENT:-25}
turns=${TURNS:-3}
threads=${THREADS:-8 32}
drive=mem:znand,planes=2,pages=64

ours() {
  # One core for the host, one for the controller, as the threads find them.
  taskset -c 0,1 "$ssdkit" ycsb "$drive" --workload paper --pages "$1" --records "$records" \
    --ops "$ops" --memory "$percent%" --clients 256 --clock real --json "${@:2}"
}
# The first number of a key in JSON that has a key a line.
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" | head -1; }
load() { cut -d' ' -f1 /proc/loadavg; }

echo "records $records, operations $ops, cache $percent % of the tree's pages; load average $(load)"
for turn in $(seq "$turns"); do
  for store in log batched; do
    report=$(ours "$store")
    # The cache of a run has the key "bytes", and no other number has.
    cache=$(number bytes <<<"$report")
    echo "turn $turn, $store: $(number ops_per_second <<<"$report") ops/s, load average $(load)"
  done
  for n in $threads; do
    for sync in "" --sync; do
      report=$("$beside" "$drive" --ycsb paper --records "$records" --ops "$ops" \
        --cache "$cache" --threads "$n" --json $sync)
      echo "turn $turn, RocksDB $sync, $n threads, cache $cache:" \
        "$(number ops_per_second <<<"$report") ops/s," \
        "$(number host_cpu_ns_per_op <<<"$report") ns of the host's processor an operation," \
        "load average $(load)"
    done
  done
done
