#include "lockstep/bench/report/run_report.h"

namespace lockstep::bench {
namespace {

// Lines say nothing of how many samples an interval had; a summary that is not of an earlier stop
// has the exact means.
void take_exact_losses(const RunFolder& folder, RunHistory& history) {
  if (!folder.summary) return;
  for (EpochHistory& epoch : history.epochs) {
    const auto facts = folder.summary->epochs.find(epoch.epoch);
    const bool covers = folder.summary->steps.value_or(-1) >= epoch.step;
    if (covers && facts != folder.summary->epochs.end() && facts->second.train_loss) {
      epoch.train_loss = facts->second.train_loss;
    }
  }
}

}  // namespace

RunReport read_run_report(const std::filesystem::path& path) {
  RunReport report{.folder = read_run_folder(path), .history = {}};
  report.history = run_history(report.folder.metrics.lines);
  take_exact_losses(report.folder, report.history);
  const std::filesystem::path profile = path / "profile" / "profile.json";
  if (std::filesystem::exists(profile))
    report.profile = read_profile(text_of_run_file(profile), profile.string());
  return report;
}

}  // namespace lockstep::bench
