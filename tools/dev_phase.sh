# shellcheck shell=bash
# How ./dev reports: one line a phase, with the time of each step; everything else goes to a log below build/log.
#
#   phase_begin build
#   phase_step compile ninja -C build/release      runs quietly; on failure shows the end of the log and exits
#   phase_end                                      prints "build    compile 81.3 s"

phase_name=""
phase_log=""
phase_steps=""
phase_started=0
phase_watcher=""

milliseconds() { date +%s%3N; }

seconds_since() {
  local elapsed=$(($(milliseconds) - $1))
  printf '%d.%d s' $((elapsed / 1000)) $((elapsed % 1000 / 100))
}

phase_begin() {
  phase_name=$1
  phase_log=build/log/$1.log
  phase_steps=""
  phase_started=$(milliseconds)
  mkdir -p build/log
  : >"$phase_log"
}

phase_end() {
  local steps=${phase_steps#, }
  printf '%-8s %s\n' "$phase_name" "${steps:-ready, $(seconds_since "$phase_started")}"
}

# Prints how far ninja is, from its last line "[12/80] Building ...": "12 of 80, about 3 min left".
phase_progress() {
  local done all elapsed left
  read -r done all < <(tail -n 1 "$phase_log" | sed -n 's#^\[\([0-9]*\)/\([0-9]*\)\].*#\1 \2#p') || return 0
  elapsed=$((($(milliseconds) - $1) / 1000))
  printf '%d of %d' "$done" "$all"
  if ((done * 20 >= all && elapsed >= 5)); then
    left=$((elapsed * (all - done) / done))
    if ((left >= 90)); then
      printf ', about %d min left' $(((left + 30) / 60))
    else
      printf ', about %d s left' "$left"
    fi
  fi
}

# Keeps in sight how far the work is, for a first build takes minutes: always on a terminal, else by a line a minute.
phase_watch() {
  local label=$1 started=$2 width text ticks=0
  width=$(($(tput cols 2>/dev/null || echo 80) - 1))
  while sleep 1; do
    ticks=$((ticks + 1))
    if [[ ! -t 2 ]] && ((ticks % 60)); then continue; fi
    text=$(printf '%-8s %s %s  %s' "$phase_name" "$label" "$(seconds_since "$started")" "$(phase_progress "$started")")
    if [[ -t 2 ]]; then
      printf '\r\033[K%s' "${text:0:width}" >&2
    else
      printf '%s\n' "$text" >&2
    fi
  done
}

phase_unwatch() {
  [[ -n $phase_watcher ]] || return 0
  kill "$phase_watcher" 2>/dev/null || true
  wait "$phase_watcher" 2>/dev/null || true
  phase_watcher=""
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}
trap phase_unwatch EXIT

# phase_run LABEL COMMAND... runs the command with its output in the log. It stays in the foreground, so that an
# interrupt reaches it.
phase_run() {
  local label=$1 status=0
  shift
  printf '$ %s\n' "$*" >>"$phase_log"
  phase_watch "$label" "$(milliseconds)" &
  phase_watcher=$!
  "$@" >>"$phase_log" 2>&1 </dev/null || status=$?
  phase_unwatch
  return "$status"
}

# Shows what a compiler said first, or else the last lines.
phase_fail() {
  local said
  said=$(sed -n '/^FAILED: /,$p' "$phase_log" | cut -c 1-400 | head -n 40)
  printf '%-8s %s failed; from %s:\n\n' "$phase_name" "$1" "$phase_log" >&2
  printf '%s\n' "${said:-$(tail -n 40 "$phase_log")}" >&2
  exit 1
}

phase_step() {
  local label=$1 started
  started=$(milliseconds)
  phase_run "$@" || phase_fail "$label"
  phase_steps+=", $label $(seconds_since "$started")"
}
