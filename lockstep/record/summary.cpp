#include "lockstep/record/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json best_json(const std::optional<BestEpoch>& best) {
  if (!best) return nullptr;
  return {{"epoch", best->epoch}, {"value", best->value}};
}

Json summary_of(const RunProfile& profile) {
  const auto peak = profile.peak();
  const double rate = profile.flops_per_second();
  return {{"steps", profile.ranks.front().steps}, {"step_ms", profile.ranks.front().step},
      {"flops_per_s", json_number(rate)}, {"peak_flops_per_s", json_number(peak)},
      {"share_of_peak", peak ? json_number(rate / *peak) : Json(nullptr)}};
}

void put_finite_scores(Json& object, const std::string& prefix, const Scores& scores) {
  for (const ScoreName& score : kScores) {
    const std::optional<double>& value = scores.*score.value;
    if (value || score.is_null_if_absent) object[prefix + score.name] = json_number(value);
  }
  for (const auto& [name, value] : scores.more) object[prefix + name] = json_number(value);
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
  std::function<std::optional<double>(const EpochSummary&)> value;
  bool always = false;  // or only where an epoch has a value
  std::size_t width = 8;
};

// Those of the averaged weights are shown only where there are some.
void add_scores(std::vector<Column>& columns, const std::string& set, Scores EpochSummary::*scores,
    const RunSummary& summary) {
  std::vector<const Scores*> all;
  for (const EpochSummary& epoch : summary.epochs) all.push_back(&(epoch.*scores));
  for (const ScoreName& score : kScores) {
    const bool always = scores == &EpochSummary::val && is_shown(score, all);
    columns.push_back({set + " " + score.title, "%.4f",
        [=, value = score.value](const EpochSummary& epoch) { return epoch.*scores.*value; },
        always});
  }
  for (const std::string& name : own_names(all))
    columns.push_back({set + " " + name, "%.4f",
        [=](const EpochSummary& epoch) { return own_number(epoch.*scores, name); }});
}

std::vector<Column> columns(const std::string& set, const RunSummary& summary) {
  using Epoch = const EpochSummary&;
  std::vector<Column> all = {
      {"seconds", "%.2f", [](Epoch epoch) { return epoch.train_seconds; }, true},
      {"samples/s", "%.0f", [](Epoch epoch) { return epoch.samples_per_s; }, true, 10},
      {"tokens/s", "%.0f", [](Epoch epoch) { return epoch.tokens_per_s; }, false, 10},
      {"train loss", "%.4f", [](Epoch epoch) { return epoch.train_loss; }, true}};
  add_scores(all, set, &EpochSummary::val, summary);
  add_scores(all, "EMA", &EpochSummary::ema, summary);
  return all;
}

bool is_shown(const Column& column, const RunSummary& summary) {
  const auto has_value = [&](const auto& epoch) { return column.value(epoch).has_value(); };
  return column.always || std::ranges::any_of(summary.epochs, has_value);
}

std::string test_line(const RunSummary& summary) {
  const ScoreName& main = main_score(summary.test);
  const std::optional<double>& best = summary.best_test.*main.value;
  const std::string last = concat("test ", main.title, " ", cell("%.4f", summary.test.*main.value));
  const bool is_last = summary.best && summary.best->epoch == summary.epochs.back().epoch;
  if (!best || is_last) return last + "\n";
  return concat(last, ", with the weights of the best epoch ", cell("%.4f", best), "\n");
}

std::string padded(const std::string& text, std::size_t width) {
  return "  " + std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

Json json_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json json_of(const EpochSummary& epoch) {
  Json object = {{"epoch", epoch.epoch}, {"train_seconds", json_number(epoch.train_seconds)},
      {"train_loss", json_number(epoch.train_loss)}};
  put_finite_scores(object, "val_", epoch.val);
  put_finite_scores(object, "ema_", epoch.ema);
  object["samples"] = epoch.samples;
  object["samples_per_s"] = json_number(epoch.samples_per_s);
  if (epoch.tokens_per_s) object["tokens_per_s"] = json_number(epoch.tokens_per_s);
  if (epoch.val_seconds) {
    object["val_seconds"] = json_number(epoch.val_seconds);
    object["val_samples"] = epoch.val_samples;
  }
  return object;
}

Scores read_scores(const JsonFields& fields, const std::string& prefix) {
  Scores scores;
  for (const ScoreName& score : kScores)
    scores.*score.value = fields.number_if((prefix + score.name).c_str());
  for (const auto& [key, value] : fields.items().items()) {
    const std::string name = key.starts_with(prefix) ? key.substr(prefix.size()) : "";
    if (is_free_name(name) && value.is_number()) scores.more[name] = value.get<double>();
  }
  return scores;
}

std::string to_json(const RunSummary& summary) {
  Json object = {{"v", 1}, {"model", summary.model}, {"data", summary.data},
      {"parallel", summary.parallel}, {"world_size", summary.world_size},
      {"stages", summary.stages}, {"chunks", summary.chunks}, {"batch_size", summary.batch_size},
      {"precision", summary.precision}, {"epochs", Json::array()},
      {"eval_metric", summary.eval_metric}, {"best", best_json(summary.best)}};
  for (const auto& epoch : summary.epochs) object["epochs"].push_back(json_of(epoch));
  put_finite_scores(object, "test_", summary.test);
  put_finite_scores(object, "best_test_", summary.best_test);
  object.update({{"steps", summary.steps}, {"skipped_steps", summary.skipped_steps},
      {"bad_images", summary.bad_images}, {"stopped_by", summary.stopped_by},
      {"parameters_hash", summary.parameters_hash},
      {"resumed_from", text_or_null(summary.resumed_from)}, {"restarts", summary.restarts},
      {"recovery_seconds", json_number(summary.recovery_seconds)},
      {"snapshot", text_or_null(summary.snapshot)},
      {"peak_memory_bytes",
          summary.peak_memory_bytes ? Json(*summary.peak_memory_bytes) : Json(nullptr)},
      {"exit", summary.exit}});
  if (summary.profile) object["profile"] = summary_of(*summary.profile);
  if (!summary.precision_asked.empty()) object["precision_asked"] = summary.precision_asked;
  // A folder's name may hold bytes that are not UTF-8; they must not cost the summary.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string epoch_table(const RunSummary& summary) {
  const bool validated = std::ranges::any_of(summary.epochs, &EpochSummary::validated);
  std::string head = "epoch";
  std::vector<std::string> rows;
  for (const auto& epoch : summary.epochs)
    rows.push_back(padded(std::to_string(epoch.epoch), 5).substr(2));
  for (const Column& column : columns(validated ? "val" : "test", summary)) {
    if (!is_shown(column, summary)) continue;
    const std::size_t width = std::max(column.head.size(), column.width);
    head += padded(column.head, width);
    for (std::size_t row = 0; row < rows.size(); ++row)
      rows[row] += padded(cell(column.format, column.value(summary.epochs[row])), width);
  }
  std::string text = head + "\n";
  for (const std::string& row : rows) text += row + "\n";
  return validated && summary.test.*main_score(summary.test).value ? text + test_line(summary)
                                                                   : text;
}

}  // namespace lockstep
