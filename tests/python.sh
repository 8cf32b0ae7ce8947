#!/usr/bin/env bash
# The Python package: its wheel, built as `pip install .` builds it and installed in an
# environment of its own, then its tests, the examples of its docstrings, types and
# lints. What did not change is not built again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}/python"
here="$(cd "${CARGO_TARGET_DIR:-target}/python" && pwd)"
python="$here/venv/bin/python"
stamp="$here/installed"

python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
  || { echo "The Python package needs Python 3.10 or newer." >&2; exit 1; }
[ -x "$python" ] || { python3 -m venv "$here/venv"; rm -f "$stamp"; }

changed() {
  [ ! -e "$stamp" ] || [ -n "$(find Cargo.toml Cargo.lock pyproject.toml README.md crates python/ssdkit \
    -type f -newer "$stamp" ! -name '*.so' ! -path '*/__pycache__/*' -print -quit)" ]
}

if changed; then
  touch "$here/begun"
  rm -rf "$here/wheel" "$here/fresh"
  "$python" -m pip wheel -q --no-deps --wheel-dir "$here/wheel" .
  wheels=("$here"/wheel/*)
  # One for all versions from 3.10 on.
  case "${wheels[*]}" in
    */ssdkit-*-cp310-abi3-*.whl) ;;
    *) echo "Not one wheel for all Pythons: ${wheels[*]}" >&2; exit 1 ;;
  esac
  "$python" -m pip install -q "${wheels[0]}[test]"
  "$python" -m pip install -q --force-reinstall --no-deps "${wheels[0]}"
  # With nothing else that somebody may have.
  python3 -m venv "$here/fresh"
  "$here/fresh/bin/python" -m pip install -q "${wheels[0]}"
  (cd / && "$here/fresh/bin/python" -c '
import ssdkit
report = ssdkit.bench("mem:znand,size=64M", rw="randread", ios=1000)
assert report.ios == 1000 and report.series.rows == 1')
  mv "$here/begun" "$stamp"
fi

"$python" -m ruff check -q python docs/notebooks
"$python" -m ruff format -q --check python docs/notebooks
"$python" -m mypy --cache-dir "$here/mypy"
"$python" -m pytest -q --import-mode=importlib --pyargs ssdkit python/tests
