#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "bench/studies/ddp_scaling/study.h"
#include "bench/study/run_files.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::ddp_scaling {
namespace {

namespace fs = std::filesystem;

// The times of a run's epochs.
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

// The times of what came after them.
struct BetweenEpochs {
  double evaluation = 0;  ///< seconds of one
  double images = 0;      ///< of one
  double checkpoint = 0;  ///< seconds of one
  double all = 0;         ///< seconds
};

std::map<std::int64_t, double> evaluation_ends(const MetricsFile& metrics) {
  std::map<std::int64_t, double> ends;
  for (const MetricLine& line : metrics.lines)
    if (line.record.split == "val") ends[line.record.epoch] = line.record.elapsed;
  return ends;
}

// Between the ends of two evaluations there are a checkpoint, an epoch and an evaluation.
double checkpoint_seconds(const SummaryFacts& facts, const std::map<std::int64_t, double>& ends) {
  double sum = 0;
  for (auto later = std::next(ends.begin()); later != ends.end(); ++later) {
    const EpochFacts& epoch = facts.epochs.at(later->first);
    const double between = later->second - std::prev(later)->second;
    sum += between - *epoch.train_seconds - *epoch.val_seconds;
  }
  return std::max(0.0, sum / static_cast<double>(ends.size() - 1));
}

BetweenEpochs between_epochs(const SummaryFacts& facts, const fs::path& run) {
  const auto ends = evaluation_ends(read_metrics(run / "metrics.jsonl"));
  BetweenEpochs between;
  for (const auto& [number, epoch] : facts.epochs) {
    const bool known = epoch.val_seconds && epoch.val_samples.value_or(0) > 0 && ends.count(number);
    if (!known) throw DataError(concat(run.string(), ": has no evaluation after epoch ", number));
    between.evaluation += *epoch.val_seconds;
    between.images = static_cast<double>(*epoch.val_samples);
  }
  const auto count = static_cast<double>(facts.epochs.size());
  between.checkpoint = checkpoint_seconds(facts, ends);
  between.all = between.evaluation + count * between.checkpoint;
  between.evaluation /= count;
  return between;
}

}  // namespace

SampleValues values_of(const fs::path& run) {
  const SummaryFacts facts = read_run_summary(run);
  const TrainedEpochs trained = epochs_of(facts, (run / "summary.json").string());
  // Ranks repeat some images to have equal shares, so a whole epoch may have a few more.
  const double share = std::min(1.0, trained.images / kStudyImages);
  const double later = trained.later / share;
  const double first = later + trained.first - trained.later;
  const double training = first + (kStudyEpochs - 1) * later;
  const BetweenEpochs between = between_epochs(facts, run);
  const double evaluation = between.evaluation * std::max(1.0, kStudyTestImages / between.images);
  return {{kRunSeconds, training}, {"first_epoch_seconds", first}, {kLaterEpoch, later},
      {"epoch_share", share}, {"trained_seconds", trained.all},
      {"samples_per_s", trained.images / trained.later}, {"evaluation_seconds", evaluation},
      {"evaluated_images", between.images}, {"checkpoint_seconds", between.checkpoint},
      {"between_seconds", between.all},
      {kWholeSeconds, training + kStudyEpochs * (evaluation + between.checkpoint)},
      {"train_loss", or_nan(facts.epochs.rbegin()->second.train_loss)}};
}

}  // namespace lockstep::bench::ddp_scaling
