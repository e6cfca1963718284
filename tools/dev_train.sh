# shellcheck shell=bash
# What ./dev train does: builds what training needs and trains; a default steps back when the user's flags speak.

# given FLAG ARGUMENTS... tells whether the flag is among the arguments.
given() {
  local flag=$1 argument
  shift
  for argument in "$@"; do
    [[ $argument == "$flag" || $argument == "$flag="* ]] && return 0
  done
  return 1
}

# Prints the default flags, one word a line, less those that the arguments replace.
train_defaults() {
  given --model "$@" || printf '%s\n' --model mnist-small
  given --data "$@" || printf '%s\n' --data fashion-mnist
  if ! given --places "$@"; then
    given --parallel "$@" || printf '%s\n' --parallel ddp
    # Ranks are for DDP only.
    if ! given --parallel "$@" || [[ "$*" =~ --parallel[=\ ]ddp ]]; then
      given --nproc-per-node "$@" || printf '%s\n' --nproc-per-node 2
    fi
  fi
  given --precision "$@" || printf '%s\n' --precision auto
  given --epochs "$@" || given --max-steps "$@" || given --max-time "$@" || printf '%s\n' --epochs 3
  given --output "$@" || printf '%s\n' --output "runs/$(date +%Y%m%d-%H%M%S)"
}

dev_train() {
  local defaults
  dev_build lockstep lockstep-train
  mapfile -t defaults < <(train_defaults "$@")
  "$build_folder/bin/lockstep" train "${defaults[@]}" "$@"
  show_what_is_next "$(output_of "${defaults[@]}" "$@")"
}

# output_of FLAGS... prints the folder after the last --output.
output_of() {
  local previous="" word folder=""
  for word in "$@"; do
    [[ $previous != --output ]] || folder=$word
    [[ $word != --output=* ]] || folder=${word#--output=}
    previous=$word
  done
  echo "$folder"
}

# What the run made, and what a newcomer may try with it. Nothing where there is no run, as after --help.
show_what_is_next() {
  local lockstep=$build_folder/bin/lockstep
  [[ -e $1/summary.json ]] || return 0
  "$lockstep" report "$1" >>build/log/report.log
  cat <<TEXT
Curves of loss and accuracy: $1/report.html

To try next:
  ./dev train --epochs 6 --output $1 --resume auto       go on with this run
  ./dev train --parallel pp --places 2                   the model in two stages
  $lockstep help train                   all flags
  ./dev install ~/.local                                 for programs of your own: README.md
TEXT
}
