#!/usr/bin/env bash
# Real clients against the real binary: a live drive in memory, served over NBD,
# and a key-value store on one, served to clients of Redis.
#
# SSDKIT names the binary. Each test starts its own server, so that one that
# breaks the drive is seen by its own name. Needs nbdinfo, nbdcopy and nbdfuse
# (libnbd-bin), qemu-io (qemu-utils), fio, mkfs.ext4 and e2fsck (e2fsprogs), redis-cli and
# redis-benchmark (redis-tools).
# The file system test needs root, /dev/fuse and loop devices; where they are
# missing it is said and counted as skipped.
set -euo pipefail

# All take half a minute, on a busy machine many times that: what takes half an
# hour hangs, and is a failure, not a wait.
if [ -z "${LIMITED:-}" ]; then
  LIMITED=1 exec timeout --kill-after=30 1800 bash "$0"
fi

SSDKIT=$(realpath "${SSDKIT:?set SSDKIT to the ssdkit binary}")
PATH=$PATH:/usr/sbin:/sbin
DIR=$(mktemp -d)
SOCKET=$DIR/nbd.sock
URI="nbd+unix:///?socket=$SOCKET"
passed=0 failed=0 skipped=0
server=

# Starts a server; a start that takes two minutes is none.
start() {
  "$SSDKIT" serve "$1" --nbd "$SOCKET" >"$DIR/server.log" 2>&1 &
  server=$!
  for _ in $(seq 2400); do
    if nbdinfo --size "$URI" >/dev/null 2>&1; then return 0; fi
    kill -0 $server 2>/dev/null || break
    sleep 0.05
  done
  echo "the server did not start:"
  cat "$DIR/server.log"
  return 1
}

# Serves a drive to Redis clients, with more options if given.
start_redis() {
  "$SSDKIT" serve "$1" --redis "$SOCKET" "${@:2}" >"$DIR/server.log" 2>&1 &
  server=$!
  for _ in $(seq 2400); do
    if [ "$(redis-cli -s "$SOCKET" ping 2>/dev/null)" = PONG ]; then return 0; fi
    kill -0 $server 2>/dev/null || break
    sleep 0.05
  done
  echo "the server did not start:"
  cat "$DIR/server.log"
  return 1
}

stop() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null || true
  local code=0
  wait "$server" || code=$?
  server=
  if [ $code -ne 0 ]; then
    echo "the server ended with $code:"
    cat "$DIR/server.log"
    return 1
  fi
}

clean_up() {
  umount "$DIR/mnt" 2>/dev/null || true
  [ -z "${loop:-}" ] || losetup -d "$loop" 2>/dev/null || true
  umount "$DIR/fuse" 2>/dev/null || true
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  rm -rf "$DIR"
}
trap clean_up EXIT

# Runs the function of that name; what it prints is shown when it fails.
check() {
  local log=$DIR/$1.log code=0
  # Not in a condition: there, errors inside the function would be ignored.
  set +e
  (set -e; trap - EXIT; "$1"; stop) >"$log" 2>&1
  code=$?
  set -e
  pkill -KILL -f "serve .*$DIR" 2>/dev/null || true
  case $code in
    0) passed=$((passed + 1)); echo "ok      $1" ;;
    77) skipped=$((skipped + 1)); echo "skipped $1: $(tail -n 1 "$log")" ;;
    *) failed=$((failed + 1)); echo "FAILED  $1"; sed 's/^/        /' "$log" ;;
  esac
  rm -f "$SOCKET"
}

# What a program prints has these words. All of it is read: one that prints more
# when nobody reads any more fails.
has() {
  grep "$1" >/dev/null
}

# What a program printed has no such words. With `!`, errors would be ignored.
lacks() {
  if grep -i "$1" "$2"; then return 1; fi
}

# A loop device goes when the last who has it open has closed it, so what is
# below it may be busy for a while.
unmount() {
  for _ in $(seq 600); do
    if umount "$1"; then return 0; fi
    sleep 0.05
  done
  return 1
}

nbdinfo_reads_the_export() {
  start mem:znand,size=256M
  nbdinfo "$URI" | tee "$DIR/info"
  grep -q "export-size: $((256 << 20))" "$DIR/info"
  grep -q "can_flush: true" "$DIR/info"
  grep -q "can_fua: true" "$DIR/info"
  grep -q "can_trim: true" "$DIR/info"
  grep -q "can_zero: true" "$DIR/info"
  grep -q "can_multi_conn: true" "$DIR/info"
  nbdinfo --list "nbd+unix:///?socket=$SOCKET" | has "export="
}

tcp_works_too() {
  # The system chooses a port that is free, and the server says which.
  "$SSDKIT" serve mem:null,size=64M --nbd 127.0.0.1:0 >"$DIR/server.log" 2>&1 &
  server=$!
  local uri=
  for _ in $(seq 2400); do
    uri=$(sed -n 's/^serving .* at \(nbd:.*\)$/\1/p' "$DIR/server.log")
    [ -z "$uri" ] || break
    kill -0 $server 2>/dev/null || break
    sleep 0.05
  done
  [ "$(nbdinfo --size "$uri")" -eq $((64 << 20)) ]
}

nbdcopy_brings_back_what_it_put() {
  start mem:tlc,size=256M
  head -c 128M /dev/urandom >"$DIR/in"
  truncate -s 256M "$DIR/in"
  nbdcopy --connections=4 "$DIR/in" "$URI"
  nbdcopy --connections=4 "$URI" "$DIR/out"
  cmp "$DIR/in" "$DIR/out"
}

qemu_io_reads_writes_and_discards() {
  start mem:znand,size=256M
  qemu-io -f raw "$URI" \
    -c "write -P 0x5a 0 1M" -c "read -P 0x5a 0 1M" \
    -c "write -P 0xa5 4608 512" -c "read -P 0xa5 4608 512" \
    -c "read -P 0x5a 4096 512" -c "read -P 0x5a 5120 512" \
    -c "write -f -P 0x11 2M 64k" -c "flush" -c "read -P 0x11 2M 64k" \
    -c "discard 0 512k" -c "read -P 0 0 512k" -c "read -P 0x5a 512k 512k" \
    -c "write -z 768k 64k" -c "read -P 0 768k 64k" \
    -c "write -z 700000k 512" 2>&1 | tee "$DIR/qemu" || true
  lacks "verification failed" "$DIR/qemu"
  [ "$(grep -c "^read .* bytes at offset" "$DIR/qemu")" -eq 8 ]
  # Out of range is an error to the client and to nobody else.
  qemu-io -f raw "$URI" -c "read -P 0x11 2M 64k" | has "^read 65536/65536"
}

fio_verifies_what_it_wrote() {
  start mem:znand,size=512M
  for job in "randwrite 4k 32" "randwrite 512 8" "write 256k 4" "randwrite 12k 16"; do
    set -- $job
    fio --name=verify --ioengine=nbd --uri="$URI" --rw="$1" --bs="$2" --iodepth="$3" \
      --size=64M --io_size=48M --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randrepeat=1 \
      --output="$DIR/fio.out"
    cat "$DIR/fio.out"
    grep -q "err= 0" "$DIR/fio.out"
  done
}

fio_verifies_under_collection() {
  start mem:znand,size=128M,groups=4,pus=2,spare=0.10
  fio --name=verify --ioengine=nbd --uri="$URI" --rw=randwrite --bs=4k --iodepth=64 \
    --size=128M --loops=4 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output="$DIR/fio.out"
  cat "$DIR/fio.out"
  grep -q "err= 0" "$DIR/fio.out"
}

shards_are_served_as_one_drive() {
  # With a link and a protected cache above them, and with nothing.
  for drive in mem:znand,size=256M,shards=4,cache=protected mem:ref,size=256M,shards=2; do
    start $drive
    head -c 100000256 /dev/urandom >"$DIR/in"
    truncate -s 256M "$DIR/in"
    nbdcopy --connections=4 --request-size=262144 "$DIR/in" "$URI"
    nbdcopy --connections=4 --request-size=1048576 "$URI" "$DIR/out"
    cmp "$DIR/in" "$DIR/out"
    fio --name=verify --ioengine=nbd --uri="$URI" --rw=randwrite --bsrange=512-192k --iodepth=16 \
      --size=128M --io_size=96M --verify=crc32c --do_verify=1 --verify_fatal=1 \
      --verify_state_save=0 --output="$DIR/fio.out"
    cat "$DIR/fio.out"
    grep -q "err= 0" "$DIR/fio.out"
    stop
    rm -f "$SOCKET"
  done
}

# The same job file by fio and by ours, on the same file: the same keys, and the same
# amounts in them.
targets_are_exports_of_their_own() {
  start mem:tlc,size=256M,units=8/24
  nbdinfo --list "$URI" | tee "$DIR/list" | has 'export="target1"'
  grep -q "export-size: $((64 << 20))" "$DIR/list"
  grep -q "export-size: $((192 << 20))" "$DIR/list"
  local one="nbd+unix:///target1?socket=$SOCKET" clients=()
  # At the same time, on the one device, each sees what it wrote and nothing else.
  for target in target0 target1; do
    fio --name=verify --ioengine=nbd --uri="nbd+unix:///$target?socket=$SOCKET" --rw=randwrite \
      --bs=4k --iodepth=16 --size=32M --verify=crc32c --do_verify=1 --verify_fatal=1 --fsync=64 \
      --verify_state_save=0 --output="$DIR/$target" &
    clients+=($!)
  done
  for client in "${clients[@]}"; do wait "$client"; done
  grep -q "err= 0" "$DIR/target0"
  grep -q "err= 0" "$DIR/target1"
  qemu-io -f raw "$one" -c "write -P 0x42 100M 64k" -c "flush" >/dev/null
  qemu-io -f raw "$URI" -c "read -P 0x42 164M 64k" | has "^read 65536/65536"
  qemu-io -f raw "nbd+unix:///target0?socket=$SOCKET" -c "read 64M 64k" >"$DIR/beyond" 2>&1 || true
  lacks "^read 65536/65536" "$DIR/beyond"
  if nbdinfo --size "nbd+unix:///target2?socket=$SOCKET" 2>/dev/null; then return 1; fi
}

job_files_are_run_as_by_fio() {
  cat >"$DIR/jobs.fio" <<END
[global]
filename=$DIR/jobs
size=8m
ioengine=psync
[reads]
rw=randread
[writes]
stonewall
rw=write
bs=64k
fsync=4
[together]
stonewall
rw=randrw
rwmixread=70
bssplit=4k/60:16k/40
numjobs=2
group_reporting
[in-order]
stonewall
description=reads of a part, twice
rw=read
bs=8k
offset=25%
size=50%
io_size=1m
loops=2
[alone]
new_group
rw=randwrite
number_ios=100
END
  fio --output-format=json+ --output="$DIR/theirs.json" "$DIR/jobs.fio"
  "$SSDKIT" fio "$DIR/jobs.fio" --output-format json+ --output "$DIR/ours.json" --destroy
  python3 - "$DIR/theirs.json" "$DIR/ours.json" <<'END'
import json, sys
theirs, ours = (json.load(open(path)) for path in sys.argv[1:])
KEPT = ("bins", "percentile", "job options", "global options", "ssdkit")
def keys(at, value):
    if isinstance(value, dict) and at.split(".")[-1] not in KEPT:
        return {key for name in value for key in keys(f"{at}.{name}", value[name])}
    return {at}
missing = keys("", theirs) ^ keys("", ours)
assert missing == {".time", ".ssdkit"}, missing
assert ours["global options"] == theirs["global options"]
assert len(ours["jobs"]) == len(theirs["jobs"]) == 5
for own, other in zip(ours["jobs"], theirs["jobs"]):
    name = own["jobname"]
    assert keys("", own) == keys("", other), keys("", own) ^ keys("", other)
    for key in ("jobname", "groupid", "error", "job options", "latency_depth"):
        assert own[key] == other[key], (name, key, own[key], other[key])
    # fio counts flushes as well, and comes to more than 100 % then.
    depths = [{n for n, share in job["iodepth_level"].items() if share} for job in (own, other)]
    assert depths[0] == depths[1], (name, depths)
    moved = [sum(job[kind]["io_bytes"] for kind in ("read", "write")) for job in (own, other)]
    assert abs(moved[0] - moved[1]) <= (32 << 10 if name == "together" else 0), (name, moved)
    for kind in ("read", "write", "trim"):
        a, b = own[kind], other[kind]
        if name != "together":
            assert a["total_ios"] == b["total_ios"], (name, kind, a["total_ios"], b["total_ios"])
            assert a["io_kbytes"] == b["io_kbytes"], (name, kind)
        else:
            assert abs(a["io_bytes"] - b["io_bytes"]) < 0.15 * sum(moved), (name, kind, moved)
        counted = (a["total_ios"], a["clat_ns"]["N"], sum(a["clat_ns"].get("bins", {}).values()))
        assert len(set(counted)) == 1, (name, kind, counted)
        percentiles = [set(side["clat_ns"].get("percentile", {})) for side in (a, b)]
        assert percentiles[0] == percentiles[1], (name, kind)
    if name != "together":
        assert own["sync"]["total_ios"] == other["sync"]["total_ios"], name
END
}

a_hostile_client_harms_nobody() {
  start mem:znand,size=64M
  qemu-io -f raw "$URI" -c "write -P 0x77 0 64k" >/dev/null
  for _ in $(seq 20); do
    head -c $((RANDOM % 5000)) /dev/urandom | timeout 1 nc -U "$SOCKET" >/dev/null 2>&1 || true
    head -c $((RANDOM % 5000)) /dev/urandom \
      | timeout 5 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.recv(18)
s.sendall(sys.stdin.buffer.read())
s.close()' "$SOCKET" 2>/dev/null || true
  done
  qemu-io -f raw "$URI" -c "read -P 0x77 0 64k" | has "^read 65536/65536"
}

a_file_system_lives_on_it() {
  [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] \
    || { echo "needs root, /dev/fuse and loop devices"; exit 77; }
  start mem:znand,size=512M
  mkdir -p "$DIR/fuse" "$DIR/mnt"
  nbdfuse "$DIR/fuse/nbd" "$URI" &
  local fuse=$!
  for _ in $(seq 2400); do
    [ -e "$DIR/fuse/nbd" ] && break
    kill -0 $fuse 2>/dev/null || break
    sleep 0.05
  done
  [ -e "$DIR/fuse/nbd" ] || { echo "nbdfuse cannot mount here"; exit 77; }
  mkfs.ext4 -q -F "$DIR/fuse/nbd"
  loop=$(losetup --find --show "$DIR/fuse/nbd") || { echo "no loop device here"; exit 77; }
  mount -t ext4 "$loop" "$DIR/mnt"
  cp -a "$(dirname "$0")/../crates" "$DIR/mnt/tree"
  head -c 32M /dev/urandom >"$DIR/mnt/random"
  sync -f "$DIR/mnt/random"
  cp "$DIR/mnt/random" "$DIR/random"
  unmount "$DIR/mnt"
  mount -t ext4 "$loop" "$DIR/mnt"
  diff -r "$(dirname "$0")/../crates" "$DIR/mnt/tree"
  cmp "$DIR/random" "$DIR/mnt/random"
  unmount "$DIR/mnt"
  e2fsck -f -n "$loop"
  losetup -d "$loop"
  unmount "$DIR/fuse"
}

redis_cli_brings_back_what_it_put() {
  local pages
  for pages in batched log in-place; do
    start_redis mem:znand,size=256M --pages $pages
    ask() { redis-cli -s "$SOCKET" "$@"; }
    [ "$(ask set a 1)" = OK ]
    [ "$(ask incr a)" = 2 ]
    [ "$(ask hset user f1 v1 f2 v2)" = 2 ]
    [ "$(ask hgetall user | tr '\n' ' ')" = "f1 v1 f2 v2 " ]
    [ "$(ask zadd _indices 3 c 1 a 2 b)" = 3 ]
    [ "$(ask zrangebyscore _indices 2 +inf limit 0 10 | tr '\n' ' ')" = "b c " ]
    [ "$(ask --scan | sort | tr '\n' ' ')" = "_indices a user " ]
    [ "$(ask --scan --pattern 'u*')" = user ]
    [ "$(ask del a user _indices)" = 3 ]
    [ "$(ask dbsize)" = 0 ]
    for i in $(seq 2000); do echo "SET key:$i value:$i"; done | ask --pipe --pipe-timeout 0 \
      | tee "$DIR/pipe"
    grep -q "errors: 0, replies: 2000" "$DIR/pipe"
    [ "$(ask get key:1234)" = value:1234 ]
    ask info | has "db0:keys=2000"
    ask nosuch | has "unknown command"
    stop
    rm -f "$SOCKET"
  done
}

# A drive that keeps values by key has all but sorted sets, and longer values.
redis_cli_brings_back_values_by_key() {
  "$SSDKIT" create "$DIR/values.ssd" --profile znand --size 128M target=kv keys=50k
  start_redis "$DIR/values.ssd"
  ask() { redis-cli -s "$SOCKET" "$@"; }
  [ "$(ask set a 1)" = OK ]
  [ "$(ask incr a)" = 2 ]
  [ "$(ask hset user f1 v1 f2 v2)" = 2 ]
  [ "$(ask hgetall user | tr '\n' ' ')" = "f1 v1 f2 v2 " ]
  ask zadd _indices 3 c | has "order of keys"
  head -c 5000000 /dev/urandom >"$DIR/long"
  [ "$(ask -x set long <"$DIR/long")" = OK ]
  ask get long | head -c 5000000 | cmp - "$DIR/long"
  [ "$(ask --scan | sort | tr '\n' ' ')" = "a long user " ]
  [ "$(ask del a user long)" = 3 ]
  for i in $(seq 2000); do echo "SET key:$i value:$i"; done | ask --pipe --pipe-timeout 0 \
    | tee "$DIR/pipe"
  grep -q "errors: 0, replies: 2000" "$DIR/pipe"
  stop
  rm -f "$SOCKET"
  start_redis "$DIR/values.ssd" --sync no
  [ "$(ask get key:1234)" = value:1234 ]
  ask info | has "db0:keys=2000"
  redis-benchmark -s "$SOCKET" -t ping,set,get,incr,mset -n 20000 -r 10000 -d 400 -P 8 -q 2>&1 \
    | tr '\r' '\n' | tee "$DIR/benchmark"
  lacks "error" "$DIR/benchmark"
  [ "$(grep -c "requests per second" "$DIR/benchmark")" -eq 6 ]
  [ "$(ask flushall)" = OK ]
  [ "$(ask dbsize)" = 0 ]
  stop
  rm -f "$SOCKET" "$DIR/values.ssd"
}

redis_benchmark_runs_clean() {
  local sync
  for sync in always everysec no; do
    start_redis mem:znand,size=256M --sync $sync --memory 8M
    redis-benchmark -s "$SOCKET" -t ping,set,get,incr,zadd,mset -n 20000 -r 20000 -d 400 \
      -P 8 -q 2>&1 | tr '\r' '\n' | tee "$DIR/benchmark"
    # One hash, with as many fields as there are random numbers: it must fit in a record.
    redis-benchmark -s "$SOCKET" -t hset -n 20000 -r 500 -d 40 -P 8 -q 2>&1 \
      | tr '\r' '\n' | tee -a "$DIR/benchmark"
    lacks "error" "$DIR/benchmark"
    # PING is measured twice; a line for each of the others.
    [ "$(grep -c "requests per second" "$DIR/benchmark")" -eq 8 ]
    [ "$(redis-cli -s "$SOCKET" hlen myhash)" -gt 400 ]
    [ "$(redis-cli -s "$SOCKET" dbsize)" -gt 10000 ]
    stop
    rm -f "$SOCKET"
  done
}

for name in \
  nbdinfo_reads_the_export \
  tcp_works_too \
  nbdcopy_brings_back_what_it_put \
  qemu_io_reads_writes_and_discards \
  fio_verifies_what_it_wrote \
  fio_verifies_under_collection \
  shards_are_served_as_one_drive \
  targets_are_exports_of_their_own \
  job_files_are_run_as_by_fio \
  a_hostile_client_harms_nobody \
  a_file_system_lives_on_it \
  redis_cli_brings_back_what_it_put \
  redis_cli_brings_back_values_by_key \
  redis_benchmark_runs_clean; do
  check $name
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
