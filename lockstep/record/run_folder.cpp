#include "lockstep/record/run_folder.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/record/summary.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

bool is_train(const MetricLine& line) { return line.record.split == "train"; }

std::vector<MetricLine> of_lowest_rank(const std::vector<MetricLine>& lines) {
  int lowest = lines.empty() ? 0 : lines.front().record.rank;
  for (const MetricLine& line : lines) lowest = std::min(lowest, line.record.rank);
  std::vector<MetricLine> found;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
      [&](const auto& line) { return line.record.rank == lowest; });
  return found;
}

/// A mean of values that may be missing, each with a weight.
class Mean {
 public:
  void add(const std::optional<double>& value, double weight) {
    if (!value || weight <= 0) return;
    sum_ += *value * weight;
    weight_ += weight;
  }

  std::optional<double> value() const {
    return weight_ > 0 ? std::optional<double>(sum_ / weight_) : std::nullopt;
  }
  double weight() const { return weight_; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

struct Span {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

using Spans = std::map<int, Span>;  // by restart

Spans spans_of(const std::vector<MetricLine>& lines) {
  Spans spans;
  for (const MetricLine& line : lines) {
    if (!is_train(line)) continue;
    const std::int64_t step = line.record.step;
    auto& span = spans.try_emplace(line.record.restart, Span{step, step}).first->second;
    span = {std::min(span.first, step), std::max(span.last, step)};
  }
  return spans;
}

// A later start that logged at other steps has measured the same steps again.
bool is_replaced(const MetricLine& line, const Spans& spans) {
  const auto later = spans.upper_bound(line.record.restart);
  return std::any_of(later, spans.end(), [&](const auto& span) {
    return span.second.first <= line.record.step && line.record.step <= span.second.last;
  });
}

/// The sums over the records of an epoch.
struct EpochSums {
  EpochHistory history;
  Mean loss;
  Mean samples_per_s;  // by seconds
  double seconds = 0;
  bool has_seconds = false;

  void add_train(const MetricRecord& record, std::int64_t steps) {
    loss.add(record.scores.loss, static_cast<double>(steps));
    history.step = record.step;
    history.lr = record.lr;
    if (!record.step_ms) return;
    const double interval = *record.step_ms * static_cast<double>(steps) / 1000;
    has_seconds = true;
    seconds += interval;
    samples_per_s.add(record.samples_per_s, interval);
  }

  EpochHistory finish() const {
    EpochHistory result = history;
    result.train_loss = loss.value();
    result.samples_per_s = samples_per_s.value();
    if (has_seconds) result.seconds = seconds;
    return result;
  }
};

void add_evaluation(RunHistory& run, EpochHistory& epoch, const MetricRecord& record) {
  if (record.split == "val") epoch.val = record.scores;
  if (record.split == "val-ema") epoch.ema = record.scores;
  if (record.split == "test") run.test = record.scores;
}

/// A walk through the lines in the file's order that notes where a restart begins.
class RestartFinder {
 public:
  void add(const MetricLine& line) {
    const MetricRecord& record = line.record;
    if (seen_ && record.restart > restart_) begin_restart(line);
    restart_ = seen_ ? std::max(restart_, record.restart) : record.restart;
    seen_ = true;
    time_ = line.unix_seconds;
    if (!is_train(line)) return;
    steps_.insert(record.step);
    furthest_ = std::max(furthest_, record.step);
  }

  std::vector<Restart> take() { return std::move(found_); }

 private:
  void begin_restart(const MetricLine& line) {
    // An evaluation comes after the training record of its step, which was then not made again.
    const std::int64_t first = line.record.step + (is_train(line) ? 0 : 1);
    const auto again = steps_.lower_bound(first);
    Restart restart{.restart = line.record.restart,
        .epoch = line.record.epoch,
        .step = line.record.step,
        .made_again = std::distance(again, steps_.end()),
        .furthest_step = furthest_};
    if (time_ && line.unix_seconds) restart.gap = *line.unix_seconds - *time_;
    found_.push_back(restart);
    steps_.erase(again, steps_.end());
  }

  bool seen_ = false;
  int restart_ = 0;
  std::optional<double> time_;
  std::set<std::int64_t> steps_;  // of training, as they stand
  std::int64_t furthest_ = 0;
  std::vector<Restart> found_;
};

std::vector<Restart> restarts_of(const std::vector<MetricLine>& lines) {
  RestartFinder finder;
  for (const MetricLine& line : lines) finder.add(line);
  return finder.take();
}

namespace fs = std::filesystem;

constexpr std::int64_t kSummaryVersion = 1;
constexpr std::size_t kMostSummaryBytes = 64 << 20;  // a line for each epoch is in it

void find_snapshots(RunFolder& run) {
  const fs::path folder = run.path / kSnapshots;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::is_regular_file(entry.path() / kManifest, none)) {
      run.snapshots.push_back(*step);
    }
  }
  std::sort(run.snapshots.begin(), run.snapshots.end());
  if (!fs::is_regular_file(folder / kBest, none)) return;
  std::string best = text_of_run_file(folder / kBest);
  if (best.ends_with('\n')) best.pop_back();
  run.best_snapshot = step_of(best);
}

std::map<std::int64_t, EpochFacts> read_epochs(const JsonFields& fields) {
  std::map<std::int64_t, EpochFacts> epochs;
  if (!fields.has("epochs")) return epochs;
  for (const JsonFields& epoch : fields.objects("epochs"))
    if (const auto number = epoch.count_if("epoch"))
      epochs[*number] = {.train_seconds = epoch.number_if("train_seconds"),
          .train_loss = epoch.number_if("train_loss"),
          .samples = epoch.count_if("samples"),
          .val_seconds = epoch.number_if("val_seconds"),
          .val_samples = epoch.count_if("val_samples")};
  return epochs;
}

}  // namespace

RunHistory run_history(const std::vector<MetricLine>& all) {
  const std::vector<MetricLine> lines = of_lowest_rank(all);
  const Spans spans = spans_of(lines);
  RunHistory run;
  run.restarts = restarts_of(lines);
  std::map<std::int64_t, EpochSums> epochs;
  std::int64_t last_step = 0;
  Mean samples_per_s;
  for (const auto& line : merged(lines)) {
    const MetricRecord& record = line.record;
    EpochSums& epoch = epochs[record.epoch];
    epoch.history.epoch = record.epoch;
    if (!is_train(line)) {
      add_evaluation(run, epoch.history, record);
    } else if (!is_replaced(line, spans)) {
      epoch.add_train(record, record.step - last_step);
      last_step = record.step;
    }
  }
  for (const auto& [number, epoch] : epochs) {
    run.epochs.push_back(epoch.finish());
    run.seconds += epoch.seconds;
    samples_per_s.add(epoch.samples_per_s.value(), epoch.seconds);
  }
  run.samples_per_s = samples_per_s.value();
  return run;
}

RunFolder read_run_folder(const fs::path& path) {
  RunFolder run{.path = path, .metrics = {}, .snapshots = {}};
  if (!fs::exists(path)) throw DataError(concat(path.string(), ": there is no such folder"));
  if (!fs::exists(path / "metrics.jsonl")) {
    throw DataError(concat(path.string(), ": holds no metrics.jsonl, so it is no run's folder"));
  }
  run.metrics = read_metrics(path / "metrics.jsonl");
  const fs::path summary = path / "summary.json";
  if (fs::exists(summary)) run.summary = parse_summary(text_of_run_file(summary), summary.string());
  find_snapshots(run);
  return run;
}

SummaryFacts parse_summary(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file, {.bytes = kMostSummaryBytes});
  const JsonFields fields(object, file);
  if (fields.count_if("v") != kSummaryVersion)
    fields.refuse("v", concat("be ", kSummaryVersion, ", the version that this program reads"));
  auto facts = JsonReader::read<SummaryFacts>(fields);
  facts.skipped_steps = fields.count_if("skipped_steps");
  facts.epochs = read_epochs(fields);
  if (const auto best = fields.object_if("best")) {
    facts.best_epoch = best->count_if("epoch");
    facts.best_value = best->number_if("value");
  }
  return facts;
}

}  // namespace lockstep
