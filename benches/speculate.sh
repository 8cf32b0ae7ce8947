#!/usr/bin/env bash
# What `ssdkit run --speculate` brings, by turns with and without, medians: dd with synchronous
# writes, and SQLite with synchronous=FULL, in both of its journals, on a drive whose flush takes
# 100 us; with DRIVE=file on a new drive file in FOLDER, and there redis-server, too, which is
# asked from outside. SSDKIT is the program; ROUNDS how many turns.
set -euo pipefail
ssdkit=${SSDKIT:-target/release/ssdkit} rounds=${ROUNDS:-5} kind=${DRIVE:-mem}
place=$(mktemp -d -p "${FOLDER:-/tmp}") data=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$place" "$data"' EXIT
drive=mem:null,program=100us,size=256M
if [ "$kind" = file ]; then drive=$place/d.ssd; fi

# Runs what follows the options with $data mapped, on a drive that has nothing.
run() {
    rm -rf "$data" "$place/d.ssd"
    if [ "$kind" = file ]; then "$ssdkit" create "$drive" --profile tlc --size 256M > /dev/null; fi
    "$ssdkit" run --drive "$drive" --map "$data" --json "$@" 2> "$place/err" > /dev/null
}

# Seconds of a script in which $D is the mapped folder.
seconds() {
    run "${@:2}" -- sh -euc "D=$data; $1"
    python3 -c 'import json, sys; print(json.loads(list(open(sys.argv[1]))[-1])["seconds"])' "$place/err"
}

# Thousands of requests a second that redis-server answers to 20 clients.
requests() {
    local socket=$place/socket
    run "${@:2}" -- redis-server --port 0 --unixsocket "$socket" --dir "$data" --save '' \
        --appendonly yes --appendfsync always --loglevel warning &
    until redis-cli -s "$socket" ping 2> /dev/null | grep -q PONG; do sleep 0.05; done
    redis-benchmark -s "$socket" -c 20 -n "$1" -r 1000 -d 100 -t set --csv | tail -n 1 | cut -d '"' -f 4 |
        python3 -c 'print(float(input()) / 1000)'
    redis-cli -s "$socket" shutdown nosave > /dev/null
    wait $!
}

sql() {
    echo "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b);"
    for n in $(seq 500); do echo "INSERT INTO t(b) VALUES('value $n');"; done
}
sql DELETE > "$place/delete.sql"
sql WAL > "$place/wal.sql"

# By turns what is measured and in which unit; of what is better when there is more of it the
# ratio is the other way round.
compare() {
    local waits=() goes=()
    for _ in $(seq "$rounds"); do
        waits+=("$("$2" "$4" --journal ordered)")
        goes+=("$("$2" "$4" --speculate)")
    done
    python3 -c '
import statistics, sys
name, unit, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
waits, goes = ([float(it) for it in sys.argv[i:i + n]] for i in (4, 4 + n))
ratios = sorted(a / b if unit == "s" else b / a for a, b in zip(waits, goes))
print(f"{name}: {statistics.median(waits):.3f} {unit}, with --speculate "
      f"{statistics.median(goes):.3f} {unit}: {statistics.median(ratios):.1f} times "
      f"({ratios[0]:.1f} to {ratios[-1]:.1f})")
' "$1" "$3" "$rounds" "${waits[@]}" "${goes[@]}"
}

compare "dd, 2000 blocks of 4 KiB, oflag=sync" seconds s \
    'dd if=/dev/zero of=$D/f bs=4k count=2000 oflag=sync'
compare "sqlite3, 500 inserts, FULL, rollback journal" seconds s "sqlite3 \$D/a.db < $place/delete.sql"
compare "sqlite3, 500 inserts, FULL, WAL" seconds s "sqlite3 \$D/a.db < $place/wal.sql"
if [ "$kind" = file ]; then
    compare "redis-server, 3000 SETs of 20 clients, appendfsync always" requests "thousand/s" 3000
fi
