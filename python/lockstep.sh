#!/bin/sh
# `lockstep` of the wheel, in a folder for programs: starts the one in the package, which is where pip puts packages for it.
own=$0
[ ! -L "$own" ] || own=$(readlink -f "$own")
# Its scripts are run by the Python of the same environment, as by torchrun.
[ -n "${PYTHON_EXEC:-}" ] || [ ! -x "${own%/*}/python3" ] || export PYTHON_EXEC="${own%/*}/python3"
for program in "${own%/*}"/../lib*/python3*/*-packages/lockstep/bin/lockstep "${own%/*}"/../lockstep/bin/lockstep; do
  [ -x "$program" ] || continue
  case ${1:-} in
    train | eval | sample)
      if [ ! -e "${program%/lockstep/bin/lockstep}/torch/lib/libtorch_cpu.so" ] && [ -z "${LD_LIBRARY_PATH:-}" ]; then
        echo "lockstep: no PyTorch beside the package lockstep, in ${program%/lockstep/bin/lockstep}: pip install torch into this environment" >&2
        exit 4
      fi ;;
  esac
  exec "$program" "$@"
done
echo "lockstep: no package lockstep for the command $0; install the wheel again: pip install --force-reinstall lockstep-torch" >&2
exit 127
