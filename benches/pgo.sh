#!/usr/bin/env bash
# A profile-guided build: what is compiled is compiled by what it was seen to do.
#
# Builds with counters, runs the loads below in virtual time, which takes a minute, and builds
# again by what was counted. Prints where the program is. Takes two builds of the profile `dist`,
# and llvm-profdata of the toolchain, which it has rustup add. The same sources give a program
# that does the same as any other build, sooner: docs/results/speed.md.
set -euo pipefail

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
HOST=$(rustc -vV | sed -n 's/^host: //p')
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}/pgo")
PROFDATA=$(rustc --print sysroot)/lib/rustlib/$HOST/bin/llvm-profdata
[ -x "$PROFDATA" ] || rustup component add llvm-tools
COUNTS=$(mktemp -d)
trap 'rm -rf "$COUNTS"' EXIT

# With --target what runs while it is built is not built so.
build() {
  RUSTFLAGS="$1" "$CARGO" build --profile dist --locked -p ssdkit --bin ssdkit \
    --target "$HOST" --target-dir "$TARGET/$2"
}

build "-Cprofile-generate=$COUNTS" counting
counting=$TARGET/counting/$HOST/dist/ssdkit
bench() {
  "$counting" bench "$@" --json >"$COUNTS/report"
}
for drive in mem:ref,size=64M,store=none mem:ref,size=1G,store=none mem:datacenter-tlc,size=1G; do
  for rw in randread randwrite randrw read write; do
    bench "$drive" --rw $rw --qd 64 --precondition seq --ios 300k
  done
done
bench mem:client-qlc,size=1G,store=none --rw randrw --qd 16 --precondition seq --ios 200k
bench mem:ref,size=256M,store=none --rw randrw --qd 32 --precondition seq --ios 200k --slowest 8
bench null: --rw randread --qd 32 --ios 1M
"$PROFDATA" merge -o "$TARGET/ssdkit.profdata" "$COUNTS"/*.profraw

build "-Cprofile-use=$TARGET/ssdkit.profdata" use
ln -f "$TARGET/use/$HOST/dist/ssdkit" "$TARGET/ssdkit"
echo "$TARGET/ssdkit"
