#!/usr/bin/env bash
# Measures and draws the figures of docs/results/drives.md. Needs gnuplot and jq.
# In the repository's root: SSDKIT=target/release/ssdkit docs/results/plots/drives.sh
set -euo pipefail
ssdkit=${SSDKIT:-ssdkit}
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# NAME DRIVE OPTION...: seconds, and GB/s in each.
measure() {
    "$ssdkit" bench "$2,store=none" "${@:3}" --json > "$work/json"
    jq -r --argjson bs "$(jq .workload.bs "$work/json")" \
        '.series[] | select(.seconds == 1) | "\(.second) \(.iops * $bs / 1e9)"' \
        "$work/json" > "$work/$1"
}

# FILE TITLE NAME LABEL [NAME LABEL]...: draws what was measured.
draw() {
    local plots=() out=$1 title=$2
    shift 2
    while [ $# -gt 0 ]; do
        plots+=("'$work/$1' using 1:2 with steps lw 2 title '$2'")
        shift 2
    done
    local IFS=,
    gnuplot <<EOF
set terminal svg size 720,360 font "sans-serif,12"
set output "$out"
set title "$title"
set xlabel "seconds"
set ylabel "GB/s"
set yrange [0:*]
set grid
plot ${plots[*]}
EOF
}

write="--rw write --bs 1M --qd 8 --ios 262144"
for cells in tlc qlc; do
    measure "$cells-empty" "mem:client-$cells,size=256G" $write
    measure "$cells-full" "mem:client-$cells,size=256G" $write --precondition seq
    draw "cliff-$cells.svg" "client-$cells, 256 GiB written in order" \
        "$cells-empty" "empty drive" "$cells-full" "full drive"
done

# NAME DRIVE BURST: seconds of pause, and GB/s of the burst after it.
recover() {
    for pause in 0.001 0.5 1 2 3 4 5 6 7 8 10 15 20; do
        "$ssdkit" bench "$2,store=none" --rw write --bs 1M --qd 8 --burst "$3" --ios "$((2 * $3))" \
            --pause "$pause" --json > "$work/json"
        jq -r --arg pause "$pause" '"\($pause) \(.bursts[1].bytes_per_second / 1e9)"' "$work/json"
    done > "$work/$1"
}

recover recovery "mem:client-tlc,size=64G" 10000
gnuplot <<EOF
set terminal svg size 720,360 font "sans-serif,12"
set output "recovery.svg"
set title "client-tlc, 64 GiB: bursts of 10.5 GB, the second after a pause"
set xlabel "pause, seconds"
set ylabel "GB/s"
set yrange [0:*]
set grid
plot "$work/recovery" using 1:2 with linespoints lw 2 notitle
EOF

warm="energy=true,thermal_resistance=18K/W,thermal_time=30s,throttle_from=70C"
warm="$warm,throttle_until=65C,throttle_rate=500MB/s,idle_power=2W"
read="--rw read --bs 128k --qd 32 --precondition seq --time 120s"
measure cool "mem:datacenter-tlc,size=1G,energy=true,idle_power=2W" $read
measure warm "mem:datacenter-tlc,size=1G,$warm" $read
draw throttling.svg "datacenter-tlc, read in order" cool "cool" warm "18 K/W, throttled from 70 to 65 C"
