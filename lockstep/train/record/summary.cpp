#include "lockstep/train/record/summary.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/train/record/summary_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json best_json(const std::optional<BestEpoch>& best) {
  if (!best) return nullptr;
  return {{"epoch", best->epoch}, {"value", best->value}};
}

std::string cell(const char* format, const std::optional<double>& value) {
  if (!value) return "-";
  char text[32];
  std::snprintf(text, sizeof text, format, *value);
  return text;
}

struct Column {
  std::string head;
  const char* format;
  std::optional<double> (*value)(const EpochSummary&);
  bool always;  // or only where an epoch has a value
  std::size_t width = 8;
};

std::vector<Column> columns(const std::string& set) {
  using Epoch = const EpochSummary&;
  using Value = std::optional<double>;
  return {
      {"seconds", "%.2f", [](Epoch epoch) -> Value { return epoch.train_seconds; }, true},
      {"samples/s", "%.0f", [](Epoch epoch) -> Value { return epoch.samples_per_s; }, true, 10},
      {"train loss", "%.4f", [](Epoch epoch) -> Value { return epoch.train_loss; }, true},
      {set + " loss", "%.4f", [](Epoch epoch) { return epoch.val_loss; }, true},
      {set + " accuracy", "%.4f", [](Epoch epoch) { return epoch.val_accuracy; }, true},
      {"top-5", "%.4f", [](Epoch epoch) { return epoch.val_accuracy5; }, false},
      {"EMA loss", "%.4f", [](Epoch epoch) { return epoch.ema_loss; }, false},
      {"EMA accuracy", "%.4f", [](Epoch epoch) { return epoch.ema_accuracy; }, false}};
}

bool is_shown(const Column& column, const RunSummary& summary) {
  return column.always || std::any_of(
                              summary.epochs.begin(), summary.epochs.end(),
                              [&](const auto& epoch) { return column.value(epoch).has_value(); });
}

std::string padded(const std::string& text, std::size_t width) {
  return "  " + std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string to_json(const RunSummary& summary) {
  Json epochs = Json::array();
  for (const auto& epoch : summary.epochs) epochs.push_back(json_of(epoch));
  Json object = {
      {"v", 1},
      {"model", summary.model},
      {"data", summary.data},
      {"parallel", summary.parallel},
      {"world_size", summary.world_size},
      {"stages", summary.stages},
      {"chunks", summary.chunks},
      {"batch_size", summary.batch_size},
      {"precision", summary.precision},
      {"epochs", epochs},
      {"eval_metric", summary.eval_metric},
      {"best", best_json(summary.best)},
      {"test_loss", json_number(summary.test_loss)},
      {"test_accuracy", json_number(summary.test_accuracy)},
      {"test_accuracy5", json_number(summary.test_accuracy5)},
      {"steps", summary.steps},
      {"skipped_steps", summary.skipped_steps},
      {"bad_images", summary.bad_images},
      {"stopped_by", summary.stopped_by},
      {"parameters_hash", summary.parameters_hash},
      {"resumed_from", text_or_null(summary.resumed_from)},
      {"restarts", summary.restarts},
      {"recovery_seconds", json_number(summary.recovery_seconds)},
      {"snapshot", text_or_null(summary.snapshot)},
      {"peak_memory_bytes",
       summary.peak_memory_bytes ? Json(*summary.peak_memory_bytes) : Json(nullptr)},
      {"exit", summary.exit}};
  if (!summary.precision_asked.empty()) object["precision_asked"] = summary.precision_asked;
  // A folder's name may hold bytes that are not UTF-8; they must not cost the summary.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string epoch_table(const RunSummary& summary) {
  const bool validated = !summary.epochs.empty() && summary.epochs.front().validated;
  std::string head = "epoch";
  std::vector<std::string> rows;
  for (const auto& epoch : summary.epochs)
    rows.push_back(padded(std::to_string(epoch.epoch), 5).substr(2));
  for (const Column& column : columns(validated ? "val" : "test")) {
    if (!is_shown(column, summary)) continue;
    const std::size_t width = std::max(column.head.size(), column.width);
    head += padded(column.head, width);
    for (std::size_t row = 0; row < rows.size(); ++row)
      rows[row] += padded(cell(column.format, column.value(summary.epochs[row])), width);
  }
  std::string text = head + "\n";
  for (const std::string& row : rows) text += row + "\n";
  if (validated) text += concat("test accuracy ", cell("%.4f", summary.test_accuracy), "\n");
  return text;
}

}  // namespace lockstep
