#!/usr/bin/env bash
# The same seed gives the same drive in an optimised build and in one with
# debug assertions: final state and all figures of drive time.
#
# RELEASE and DEBUG name the two binaries. The optimised one has none of the faults that the
# simulator plants, and is the one that `cargo run` runs.
set -euo pipefail
failed=0
# All of it is read, as a pipe that is closed early is an error here.
if nm "${RELEASE:?set RELEASE}" | grep mutation > /dev/null; then
  echo "DIFFER  planted faults are in $RELEASE"
  failed=1
fi
"${CARGO:-cargo}" run --release --locked --quiet -- --version | grep -q '^ssdkit ' \
  || { echo "DIFFER  cargo run runs something else"; failed=$((failed + 1)); }
while read -r drive options; do
  for binary in "${RELEASE:?set RELEASE}" "${DEBUG:?set DEBUG}"; do
    # shellcheck disable=SC2086
    "$binary" bench "$drive" $options --seed 7 --json \
      | python3 -c '
import json, sys
report = json.load(sys.stdin)
for key in ("wall_seconds", "cpu"):
    report.pop(key)
print(json.dumps(report, sort_keys=True))'
  done | uniq | wc -l | grep -qx 1 \
    && echo "same    $drive $options" \
    || { echo "DIFFER  $drive $options"; failed=$((failed + 1)); }
done <<'RUNS'
mem:tlc,size=128M --rw randrw --read-percent 60 --qd 16 --ios 60k --precondition seq
mem:znand,size=192M,groups=4,pus=2,spare=0.12,side=host --rw randwrite --bs 2k --qd 32 --ios 40k
mem:openssd,size=256M,victim=d-choices:4,store=checksum --rw randwrite --qd 8 --ios 40k
mem:qlc,size=512M,store=none,victim=random --rw randrw --bs 16k --threads 4 --qd 4 --ios 30k
RUNS
[ "$failed" -eq 0 ]
