# shellcheck shell=bash
# What ./dev check does. Every check runs even if one before it failed.

check_failed=0

tracked() {
  git ls-files --cached --others --exclude-standard -- "$@"
}

# Scripts by their first line; a piece that others source is checked within those.
scripts_of() {
  # shellcheck disable=SC2016 # the dollar is awk's
  tracked | xargs --delimiter='\n' awk -v interpreter="$1" '
    FNR == 1 && $0 ~ "^#!.*[/ ]" interpreter "$" {print FILENAME} {nextfile}'
}

python_files() {
  tracked '*.py' && scripts_of python3
}

format_files() {
  tracked '*.h' '*.cpp' | xargs --no-run-if-empty clang-format-14 "$@"
}

check_shell() {
  scripts_of bash | xargs shellcheck --external-sources --check-sourced
}

check_python() {
  python_files | xargs python3 -c '
import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name).read(), name)'
}

# check_one NAME COMMAND... prints one line, and below it the complaints if there are any.
check_one() {
  local name=$1 started verdict=ok
  shift
  phase_begin "$name"
  started=$(milliseconds)
  phase_run "" "$@" || verdict=failed
  printf 'check    %-8s %-6s %s%s\n' "$name" "$verdict" "$(seconds_since "$started")" "$(check_remark "$name")"
  if [[ $verdict == failed ]]; then
    check_failed=1
    tail -n +2 "$phase_log" | grep -v 'warnings\? generated\|warnings treated as errors' | head -n 200 || true
  fi
}

# What clang-tidy left out must be seen.
check_remark() {
  if [[ $1 == tidy ]]; then
    printf '  %s' "$(tail -n 1 "$phase_log")"
  fi
}

dev_check() {
  case ${1:-} in
    "" | --fix) ;;
    *) die "dev: check takes --fix, not '$1'" ;;
  esac
  packages+=("${packages_for_check[@]}")
  dev_setup
  if [[ ${1:-} == --fix ]]; then
    format_files -i
    return
  fi
  phase_begin build
  build_configure
  phase_end
  check_one format format_files --dry-run -Werror
  check_one layers tools/check_layers
  check_one style tools/check_style
  check_one rooms tools/room_sizes
  check_one shell check_shell
  check_one python check_python
  check_one tidy tools/check_tidy "$build_folder"
  ((check_failed == 0)) || die "check: failed; the whole of each is in build/log"
}

dev_tidy() {
  packages+=("${packages_for_check[@]}")
  dev_setup
  phase_begin build
  build_configure
  phase_end
  check_one tidy tools/check_tidy "$build_folder" --all
  ((check_failed == 0)) || die "tidy: failed; the whole of it is in build/log"
}
