#!/usr/bin/env bash
# What `ssdkit run --speculate` brings: dd with synchronous writes, and SQLite with
# synchronous=FULL, in both of its journals, on a drive whose flush takes 100 us; by turns with
# and without, medians. SSDKIT is the program; ROUNDS how many turns.
set -euo pipefail
ssdkit=${SSDKIT:-target/release/ssdkit} rounds=${ROUNDS:-5}
place=$(mktemp -d) data=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$place" "$data"' EXIT
drive=mem:null,program=100us,size=256M

# Seconds of a script in which $D is the mapped folder.
seconds() {
    rm -rf "$data"
    "$ssdkit" run --drive "$drive" --map "$data" --json "${@:2}" -- sh -euc "D=$data; $1" \
        2> >(tail -n 1 > "$place/json") > /dev/null
    wait
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["seconds"])' "$place/json"
}

sql() {
    echo "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b);"
    for n in $(seq 500); do echo "INSERT INTO t(b) VALUES('value $n');"; done
}
sql DELETE > "$place/delete.sql"
sql WAL > "$place/wal.sql"

compare() {
    local waits=() goes=()
    for _ in $(seq "$rounds"); do
        waits+=("$(seconds "$2" --journal ordered)")
        goes+=("$(seconds "$2" --speculate)")
    done
    python3 -c '
import statistics, sys
name, n = sys.argv[1], int(sys.argv[2])
waits, goes = ([float(it) for it in sys.argv[i:i + n]] for i in (3, 3 + n))
ratios = sorted(a / b for a, b in zip(waits, goes))
print(f"{name}: {statistics.median(waits):.3f} s, with --speculate {statistics.median(goes):.3f} s: "
      f"{statistics.median(ratios):.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f})")
' "$1" "$rounds" "${waits[@]}" "${goes[@]}"
}

compare "dd, 2000 blocks of 4 KiB, oflag=sync" \
    'dd if=/dev/zero of=$D/f bs=4k count=2000 oflag=sync'
compare "sqlite3, 500 inserts, FULL, rollback journal" "sqlite3 \$D/a.db < $place/delete.sql"
compare "sqlite3, 500 inserts, FULL, WAL" "sqlite3 \$D/a.db < $place/wal.sql"
