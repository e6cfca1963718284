#include "lockstep/cli/train/snapshot_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/core/error.h"
#include "lockstep/train/options/snapshot_interval.h"

namespace lockstep::cli {
void add_snapshot_flags(CLI::App& app, SnapshotTexts& texts) {
  const char* group = "Snapshots";
  app.add_option("--resume", texts.resume)
      ->type_name("WHEN")
      ->description(
          "auto: go on from the newest snapshot in --output; never; DIR: from that run or snapshot "
          "[never]")
      ->group(group);
  app.add_option("--snapshot-interval", texts.interval)
      ->type_name("TIME")
      ->description("500steps, 2epochs, 600s; none: only the last; never [chosen by the overhead]")
      ->group(group);
  app.add_option("--snapshot-overhead", texts.overhead)
      ->type_name("PERCENT")
      ->description("of the time, which chooses the interval, 30 s at least [1%]")
      ->group(group);
  app.add_option("--keep", texts.keep)
      ->type_name("N")
      ->description("newest snapshots; the best one is kept besides [2]")
      ->group(group);
  app.add_flag(
         "--snapshot-required", texts.required,
         "end the run when one cannot be written, instead of a warning")
      ->group(group);
}

SnapshotSettings snapshots_of(const SnapshotTexts& texts) {
  check(
      !texts.interval || !texts.overhead,
      "train: --snapshot-interval and --snapshot-overhead both say when to save; give one");
  SnapshotSettings settings{.keep = texts.keep, .required = texts.required};
  if (texts.overhead) settings.count = parse_snapshot_overhead(*texts.overhead);
  if (texts.interval) {
    const SnapshotInterval interval = parse_snapshot_interval(*texts.interval);
    settings.unit = interval.unit;
    settings.count = interval.count;
  }
  return settings;
}

ResumeSettings resume_of(const SnapshotTexts& texts, int restart_count) {
  check(!texts.resume.empty(), "train: --resume takes auto, never or the folder of a run");
  const bool named = texts.resume != "auto" && texts.resume != "never";
  const bool again = restart_count > 0;
  if (named) return {.kind = Resume::kFrom, .from = texts.resume, .again = again};
  const bool resumes = texts.resume == "auto" || again;
  return {.kind = resumes ? Resume::kAuto : Resume::kNever, .again = again};
}

}  // namespace lockstep::cli
