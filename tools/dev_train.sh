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
  exec "$build_folder/bin/lockstep" train "${defaults[@]}" "$@"
}
