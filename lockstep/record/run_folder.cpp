#include "lockstep/record/run_folder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/record/summary.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSummaryVersion = 1;
constexpr std::size_t kMostSummaryBytes = 64 << 20;  // a line for each epoch is in it
constexpr std::size_t kMostFileBytes = 256 << 20;    // a profile has boxes of each thread

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

std::string text_of_run_file(const fs::path& path) {
  InputFile file(path);
  std::string text;
  std::array<std::uint8_t, 1 << 16> block;
  for (std::size_t size = file.read(block); size > 0; size = file.read(block)) {
    text.append(reinterpret_cast<const char*>(block.data()), size);
    if (text.size() > kMostFileBytes) {
      throw DataError(concat(path.string(), ": has more than ", kMostFileBytes, " bytes"));
    }
  }
  return text;
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
  const auto text_of_field = [&](const char* key) { return fields.text_if(key).value_or(""); };
  SummaryFacts facts{.model = text_of_field("model"),
      .data = text_of_field("data"),
      .parallel = text_of_field("parallel"),
      .precision = text_of_field("precision"),
      .world_size = fields.count_if("world_size"),
      .batch_size = fields.count_if("batch_size"),
      .steps = fields.count_if("steps"),
      .skipped_steps = fields.count_if("skipped_steps"),
      .eval_metric = text_of_field("eval_metric"),
      .test = read_scores(fields, "test_"),
      .best_test = read_scores(fields, "best_test_"),
      .stopped_by = text_of_field("stopped_by"),
      .parameters_hash = text_of_field("parameters_hash"),
      .resumed_from = text_of_field("resumed_from"),
      .restarts = fields.count_if("restarts"),
      .exit = fields.count_if("exit"),
      .peak_memory_bytes = fields.count_if("peak_memory_bytes"),
      .epochs = read_epochs(fields)};
  if (const auto best = fields.object_if("best")) {
    facts.best_epoch = best->count_if("epoch");
    facts.best_value = best->number_if("value");
  }
  return facts;
}

}  // namespace lockstep::bench
