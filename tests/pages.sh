#!/usr/bin/env bash
# Pages in a real browser: pages of one run and of three, one of known figures, one of a
# report from before there were maps and causes, and one of a study, are opened by headless
# Chromium. It must say nothing on its console, find each picture, and what is drawn must
# not be blank.
#
#   tests/pages.sh
#
# SSDKIT names the binary. Needs chromium.
set -euo pipefail
SSDKIT=$(realpath "${SSDKIT:?set SSDKIT to the ssdkit binary}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for qd in 1 4 16; do
  "$SSDKIT" bench mem:znand,size=64M,store=none --rw randrw --qd $qd --precondition seq --time 6s \
    --json >qd$qd.json
done
"$SSDKIT" bench mem:znand,size=64M --rw randwrite --time 3s --slowest 3 --report one.html >one.txt
python3 - <<'PYTHON'
import json
run = json.load(open("qd1.json"))
# As it was before, and with known figures.
old = {key: value for key, value in run.items() if key not in ("dies", "chunks")}
for row in old["series"]:
    row.pop("programmed", None)
    row.pop("tail", None)
json.dump(old, open("old.json", "w"))
for n, row in enumerate(run["series"]):
    row["programmed"] = {"user": 100, "gc": 50 * (n % 2), "padding": 0, "metadata": 10,
                         "parity": 25, "folds": 100}
    row["tail"] = {"requests": 16, "from_ns": 10, "ns": 400, "parts": [
        {"part": "die", "behind": "program of user", "ns": 300}, {"part": "array", "ns": 100}]}
run["dies"] = {"pus": 2, "ends": [2.0, 4.0, 6.0],
               "busy": ["0 55 100", "100 100 100", "0 0 0", "9 10 11"]}
run["chunks"] = {"pus": 2, "each": 1, "states": ["fcoc", "cccx", "cccc", "ffff"],
                 "erases": ["1 2 3 4", "1 1 1 9", "5 5 5 5", "1 1 1 1"],
                 "valid": ["0 55 10 99", "0 0 0 0", "95 95 95 95", "0 0 0 0"]}
json.dump(run, open("known.json", "w"))
PYTHON
"$SSDKIT" compare known.json --html known.html >/dev/null
"$SSDKIT" compare old.json --html old.html >/dev/null
"$SSDKIT" compare qd16.json qd1.json qd4.json --html three.html --pictures . >three.txt

"$SSDKIT" study myths --quick --report study.html --pictures . >study.txt

browser() {
  timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" "$@"
}

# The pictures of each page.
before="latency distribution rate bands amplification over-time"
maps="programmed wear valid"
declare -A expected=(
  [one]="$before programmed tail dies wear valid"
  [known]="$before programmed tail dies wear valid"
  [old]="$before"
  [three]="$before $maps depth"
  [study]="unnamed unnamed unnamed unnamed unnamed"
)
passed=0
for page in one known old three study; do
  browser --enable-logging=stderr --v=0 --window-size=1000,5600 --screenshot="$work/$page.png" \
    "file://$work/$page.html" 2>"$page.log" >/dev/null
  if grep CONSOLE "$page.log"; then
    echo "$page.html: the browser complains" >&2
    exit 1
  fi
  browser --dump-dom "file://$work/$page.html" 2>/dev/null >"$page.dom"
  pictures=$(grep -oP '<figure( id="[a-z-]*")?(?=><svg)' "$page.dom" \
    | sed -e 's/.* id="\(.*\)"/\1/' -e 's/<figure/unnamed/' | xargs)
  if [ "$pictures" != "${expected[$page]}" ]; then
    echo "$page.html: pictures $pictures, not ${expected[$page]}" >&2
    exit 1
  fi
  # Studies draw some of theirs themselves.
  if [ $page != study ] && (($(grep -o '</title>' "$page.dom" | wc -l) != 1 + $(wc -w <<<"$pictures"))); then
    echo "$page.html: a picture has no title" >&2
    exit 1
  fi
  if (($(grep -o '<polyline' "$page.dom" | wc -l) < 5)); then
    echo "$page.html: lines are missing" >&2
    exit 1
  fi
  if [ $page = study ] && ! grep -q 'class="verdict pass"' "$page.dom"; then
    echo "$page.html: no verdict" >&2
    exit 1
  fi
  # A white page of this size is some 10 kB.
  if (($(stat -c %s "$page.png") < 50000)); then
    echo "$page.html: the picture of it is blank" >&2
    exit 1
  fi
  passed=$((passed + 1))
done
# What is known is where it belongs, and what is not in a picture is said: five reasons, two causes, of four dies one that is
# always busy, one chunk that is offline, one that is open, five that are free.
drawn() {
  tr -d '\n' <known.dom | grep -oP "<figure id=\"$1\">.*?</figure>" | grep -oP -- "$2" | wc -l
}
check() {
  if (($(drawn "$1" "$2") != $3)); then
    echo "known.html: $(drawn "$1" "$2") of '$2' in $1, not $3" >&2
    exit 1
  fi
}
check programmed '<polygon' 5
check tail '<polygon' 2
check tail 'die, behind program of user' 1
check dies 'fill="#08306b" d="M2 0h1v1h-1zM0 1h3v1h-3z"' 1
check dies '>1/1<' 1
check wear 'fill="#d62a28" d="M3 1h1v1h-1z"' 1
check programmed '<figcaption>.*amplification: parity, and folds of the SLC cache' 1
check valid 'fill="#ff7f0e" d="M2 0h1v1h-1z"' 1
check valid 'fill="#ffffff" d="M0 0h1v1h-1zM0 3h4v1h-4z"' 1
for picture in *.svg; do
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$picture"
done
echo "$passed pages, $(ls ./*.svg | wc -l) pictures: all drawn, nothing on the console"
