#!/usr/bin/env bash
# Instructions a request: a figure that does not depend on how busy the machine
# is. Counts them for each case of docs/results/instructions.md and fails when
# one grew by more than 10 %, or a case is missing on either side. An example
# runs N and 2N requests without a clock under callgrind; the difference is what
# N requests take.
#
#   tests/instructions.sh            compare
#   tests/instructions.sh --update   write what is counted into the document
set -euo pipefail
cd "$(dirname "$0")/.."
table=docs/results/instructions.md
cargo=${CARGO:-cargo}
build=${CARGO_TARGET_DIR:-target}/dist/examples
requests=100000

# A name; the example; its arguments, N being the number of requests.
cases='
raw 32/32|layer_speed|raw 32 32 N
mq 32/32|layer_speed|mq 32 32 N
shared 32/32|layer_speed|shared 32 32 N
raw 32/1|layer_speed|raw 32 1 N
mq 32/1|layer_speed|mq 32 1 N
shared 32/1|layer_speed|shared 32 1 N
pblk reads 32/32|pblk_speed|reads size=1 batch=32 fixed=N
pblk reads 1/1, plain and hinted|pblk_speed|reads size=1 depth=1 fixed=N
pblk fresh writes 32/32|pblk_speed|fresh size=1 batch=32 fixed=N
pblk steady writes 32/32|pblk_speed|steady size=1 warm=1 batch=32 fixed=N
pblk in drive time, a read and a write|pblk_speed|virtual size=1 fixed=N
rules, 10 installed|decide|10 N
rules, 1000 installed|decide|1000 N
'

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cargo" build --profile dist --locked --quiet -p ssdkit-blkmq --example layer_speed
"$cargo" build --profile dist --locked --quiet -p ssdkit-targets --example pblk_speed
"$cargo" build --profile dist --locked --quiet -p ssdkit-rules --example decide

# Instructions of a command.
count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null \
    | awk '/Collected :/ { print $NF; found = 1 } END { exit !found }'
}

# The table's line of a case.
measure() {
  local name=$1 program=$build/$2 arguments=$3 once twice
  # shellcheck disable=SC2086
  once=$(count "$program" ${arguments//N/$requests})
  # shellcheck disable=SC2086
  twice=$(count "$program" ${arguments//N/$((2 * requests))})
  awk -v name="$name" -v n=$((twice - once)) -v requests=$requests \
    'BEGIN { printf "| %s | %.1f |\n", name, n / requests }'
}

counted=$work/counted
while IFS='|' read -r name example arguments; do
  [ -z "$name" ] || measure "$name" "$example" "$arguments"
done <<<"$cases" >"$counted"

if [ "${1:-}" = --update ]; then
  awk -v counted="$counted" '
    /^\| case / { print; getline; print
                  while ((getline line < counted) > 0) print line
                  skip = 1; next }
    skip && /^\|/ { next }
    { skip = 0; print }' "$table" >"$work/table"
  cp "$work/table" "$table"
  cat "$counted"
  exit
fi

# The cases of the table, then those that were counted.
awk -F' *[|] *' '
  FNR == NR { if (NF == 4 && $3 ~ /^[0-9.]+$/) before[$2] = $3; next }
  {
    if (!($2 in before)) { verdict = "NOT IN THE TABLE"; failed = 1 }
    else if ($3 > 1.1 * before[$2]) { verdict = "GREW"; failed = 1 }
    else if ($3 < before[$2] / 1.1) verdict = "shrank: update the table"
    else verdict = "same"
    printf "%-26s %8.1f  was %8s  %s\n", $2, $3, ($2 in before) ? before[$2] : "-", verdict
    delete before[$2]
  }
  END {
    for (name in before) { print name ": in the table, not counted"; failed = 1 }
    exit failed
  }' "$table" "$counted" || {
  echo "More than 10 % more instructions a request than $table says, or cases missing." >&2
  echo "If that is meant, run tests/instructions.sh --update and commit the table." >&2
  exit 1
}
