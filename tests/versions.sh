#!/usr/bin/env bash
# The suite on the oldest JAX that is supported and on the newest there is, each in an environment
# of its own made from the project's files. Arguments go to pytest: tests/versions.sh -m slow
set -euo pipefail

# The newest Python that runs here, on PATH or under pyenv; nothing where there is none above 3.11.
newest_python() {
  local minor candidate
  for minor in 14 13 12; do
    for candidate in "python3.$minor" \
      $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor."*/bin/python3 2>/dev/null | sort -rV); do
      # A shim of pyenv may be on PATH and refuse to run.
      if "$candidate" -c "import ensurepip, sys, venv; assert sys.version_info[1] == $minor" 2>/dev/null; then
        command -v "$candidate"
        return
      fi
    done
  done
}

# make_environment FOLDER PYTHON EXTRAS [CONSTRAINT...]: with the extra ``test`` and EXTRAS, such as
# ",dev", in one call of pip, which resolves once.
make_environment() {
  local folder=$1 python=$2 extras=$3
  shift 3
  "$python" -m venv "$folder"
  printf '%s\n' "$@" >"$folder/constraints.txt"
  # What is imported is compiled then; pip would compile everything, half of its time.
  "$folder/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
    --constraint "$folder/constraints.txt" -e ".[test$extras]"
}

# install_wheel FOLDER PYTHON: builds the source archive, from it the wheel, and installs that with
# the launcher's dependencies in FOLDER/venv.
install_wheel() {
  local folder=$1 python=$2
  "$python" -m venv "$folder/build"
  "$folder/build/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check build hatchling
  "$folder/build/bin/python" -m build --no-isolation --outdir "$folder/dist" .
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
    "$(ls "$folder"/dist/fcojax-*.whl)[experiments]"
}

# install_sites FOLDER: builds the wheel of packages/sites and installs it beside the library's.
install_sites() {
  local folder=$1
  "$folder/build/bin/python" -m build --no-isolation --wheel --outdir "$folder/dist" packages/sites
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "$folder"/dist/fcojax_sites-*.whl
}

# suite NAME PYTHON [ARGUMENT...]: pytest, the versions it ran on, and how long it took.
suite() {
  local name=$1 python=$2 began=$SECONDS failed=0
  shift 2
  "$python" -m pytest "$@" || failed=$?
  "$python" -c "import platform, jax; print('$name: Python', platform.python_version(), 'and JAX', jax.__version__, end=', ')"
  echo "$((SECONDS - began)) s, exit status $failed"
  return "$failed"
}

main() {
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  local newest status=0
  make_environment "$work/floor" python3.11 "" 'jax==0.10.*' 'jaxlib==0.10.*'
  suite floor "$work/floor/bin/python" "$@" || status=$?
  newest=$(newest_python)
  if [ -z "$newest" ]; then
    echo "newest: no Python 3.12 or later on PATH or under pyenv"
    return 1
  fi
  make_environment "$work/newest" "$newest" ""
  suite newest "$work/newest/bin/python" "$@" || status=$?
  return "$status"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  main "$@"
fi
