#include "lockstep/bench/studies/data_parallel/epoch_values.h"

#include <algorithm>

#include "lockstep/bench/studies/run_summary_file.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

const EpochFacts& epoch(const SummaryFacts& facts, std::int64_t number, const std::string& file) {
  const auto found = facts.epochs.find(number);
  const bool whole = found != facts.epochs.end() && found->second.train_seconds.has_value() &&
                     found->second.samples.has_value() && *found->second.samples > 0;
  if (!whole) throw DataError(concat(file, ": has no time of epoch ", number));
  return found->second;
}

}  // namespace

std::map<std::string, double> epoch_values(const std::filesystem::path& run, std::int64_t images) {
  const std::string file = (run / "summary.json").string();
  const SummaryFacts facts = read_run_summary(run);
  const EpochFacts& first = epoch(facts, 1, file);
  const EpochFacts& second = epoch(facts, 2, file);
  const auto samples = static_cast<double>(*second.samples);
  // Ranks repeat some samples to have equal shares, so a whole epoch may have a few more.
  const double share = std::min(1.0, samples / static_cast<double>(images));
  const double second_seconds = *second.train_seconds / share;
  const double starting = *first.train_seconds - *second.train_seconds;
  return {
      {"epoch_share", share},
      {"first_epoch_seconds", second_seconds + starting},
      {"second_epoch_seconds", second_seconds},
      {"samples_per_s", samples / *second.train_seconds},
      {"train_loss", or_nan(second.train_loss)},
      {"test_accuracy", or_nan(facts.test.top1)}};
}

}  // namespace lockstep::bench
