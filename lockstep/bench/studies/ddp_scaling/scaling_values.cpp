#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"

#include <algorithm>

#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/run_summary_file.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

/// Is what the epochs of a run took.
struct TrainedEpochs {
  double first = 0;   ///< seconds
  double later = 0;   ///< seconds of one of the others, their mean
  double all = 0;     ///< seconds
  double images = 0;  ///< of an epoch
};

TrainedEpochs epochs_of(const SummaryFacts& facts, const std::string& file) {
  TrainedEpochs trained;
  for (const auto& [number, epoch] : facts.epochs) {
    if (!epoch.train_seconds || !epoch.samples || *epoch.samples < 1) {
      throw DataError(concat(file, ": has no time of epoch ", number));
    }
    if (number == 1) trained.first = *epoch.train_seconds;
    trained.all += *epoch.train_seconds;
    trained.images = static_cast<double>(*epoch.samples);
  }
  const bool enough = facts.epochs.size() > 1 && facts.epochs.count(1) == 1;
  if (!enough) throw DataError(concat(file, ": has fewer than two epochs"));
  trained.later = (trained.all - trained.first) / static_cast<double>(facts.epochs.size() - 1);
  return trained;
}

}  // namespace

std::map<std::string, double> scaling_values(const std::filesystem::path& run) {
  const SummaryFacts facts = read_run_summary(run);
  const TrainedEpochs trained = epochs_of(facts, (run / "summary.json").string());
  // Ranks repeat some images to have equal shares, so a whole epoch may have a few more.
  const double share = std::min(1.0, trained.images / kStudyImages);
  const double later = trained.later / share;
  const double first = later + trained.first - trained.later;
  return {
      {kRunSeconds, first + (kStudyEpochs - 1) * later},
      {"first_epoch_seconds", first},
      {kLaterEpoch, later},
      {"epoch_share", share},
      {"trained_seconds", trained.all},
      {"samples_per_s", trained.images / trained.later},
      {"train_loss", or_nan(facts.epochs.rbegin()->second.train_loss)}};
}

}  // namespace lockstep::bench
