#!/bin/sh
# `lockstep` of the wheel, in a folder for programs: starts the one in the package, which is where pip puts packages for it.
folder=$(dirname "$(readlink -f "$0")")
for program in "$folder"/../lib*/python3*/*-packages/lockstep/bin/lockstep "$folder"/../lockstep/bin/lockstep; do
  [ ! -x "$program" ] || exec "$program" "$@"
done
echo "lockstep: no package lockstep for the command $0; install the wheel again: pip install --force-reinstall lockstep-torch" >&2
exit 127
