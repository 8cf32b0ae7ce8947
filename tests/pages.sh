#!/usr/bin/env bash
# Pages in a real browser: a page of one run, one of three, and one of a study, are
# opened by headless Chromium. It must say nothing on its console, find each picture,
# and what is drawn must not be blank.
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
"$SSDKIT" bench mem:znand,size=64M --rw randwrite --time 3s --report one.html >one.txt
"$SSDKIT" compare qd16.json qd1.json qd4.json --html three.html --pictures . >three.txt

"$SSDKIT" study myths --quick --report study.html --pictures . >study.txt

browser() {
  timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" "$@"
}

passed=0
for page in one three study; do
  browser --enable-logging=stderr --v=0 --window-size=1000,3600 --screenshot="$work/$page.png" \
    "file://$work/$page.html" 2>"$page.log" >/dev/null
  if grep CONSOLE "$page.log"; then
    echo "$page.html: the browser complains" >&2
    exit 1
  fi
  browser --dump-dom "file://$work/$page.html" 2>/dev/null >"$page.dom"
  pictures=$(grep -oE '<figure( id="[a-z-]*")?><svg' "$page.dom" | wc -l)
  lines=$(grep -o '<polyline' "$page.dom" | wc -l)
  expected=6
  [ $page = three ] && expected=7
  [ $page = study ] && expected=5
  if ((pictures != expected || lines < pictures)); then
    echo "$page.html: $pictures pictures with $lines lines, not $expected" >&2
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
for picture in *.svg; do
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$picture"
done
echo "$passed pages, $(ls ./*.svg | wc -l) pictures: all drawn, nothing on the console"
