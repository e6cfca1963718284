#include <nlohmann/json.hpp>

#include "lockstep/bench/json_number.h"
#include "lockstep/bench/report/run_report.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

void put_scores(Json& object, const std::string& key, const Scores& scores) {
  for (const ScoreName& score : kScores) put_number(object, key + score.name, scores.*score.value);
}

Json count(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json epoch_json(const EpochHistory& epoch) {
  Json object = {{"epoch", epoch.epoch}, {"step", epoch.step}};
  put_number(object, "train_loss", epoch.train_loss);
  for (const ScoreSet& set : kScoreSets) put_scores(object, set.key, epoch.*set.scores);
  put_number(object, "lr", epoch.lr);
  put_number(object, "samples_per_s", epoch.samples_per_s);
  put_number(object, "seconds", epoch.seconds);
  return object;
}

Json restart_json(const Restart& restart) {
  Json object = {{"restart", restart.restart}, {"epoch", restart.epoch}, {"step", restart.step},
      {"made_again", restart.made_again}, {"furthest_step", restart.furthest_step}};
  put_number(object, "gap_seconds", restart.gap);
  return object;
}

Json summary_json(const std::optional<SummaryFacts>& facts) {
  if (!facts) return nullptr;
  Json object = {{"model", text(facts->model)}, {"data", text(facts->data)},
      {"parallel", text(facts->parallel)}, {"precision", text(facts->precision)},
      {"world_size", count(facts->world_size)}, {"batch_size", count(facts->batch_size)},
      {"steps", count(facts->steps)}, {"eval_metric", text(facts->eval_metric)},
      {"best_epoch", count(facts->best_epoch)}};
  put_number(object, "best_value", facts->best_value);
  put_scores(object, "test_", facts->test);
  put_scores(object, "best_test_", facts->best_test);
  object["stopped_by"] = text(facts->stopped_by);
  object["parameters_hash"] = text(facts->parameters_hash);
  object["resumed_from"] = text(facts->resumed_from);
  object["restarts"] = count(facts->restarts);
  object["exit"] = count(facts->exit);
  object["peak_memory_bytes"] = count(facts->peak_memory_bytes);
  return object;
}

Json run_json(const RunReport& run) {
  Json object = {
      {"run", run.folder.path.string()}, {"epochs", Json::array()}, {"restarts", Json::array()}};
  for (const auto& epoch : run.history.epochs) object["epochs"].push_back(epoch_json(epoch));
  for (const auto& restart : run.history.restarts) {
    object["restarts"].push_back(restart_json(restart));
  }
  put_scores(object, "test_", run.history.test);
  put_number(object, "seconds", run.history.seconds);
  put_number(object, "samples_per_s", run.history.samples_per_s);
  object["left_out"] = run.folder.metrics.left_out;
  object["snapshots"] = run.folder.snapshots;
  object["best_snapshot"] = count(run.folder.best_snapshot);
  object["summary"] = summary_json(run.folder.summary);
  return object;
}

}  // namespace

std::string report_json(const std::vector<RunReport>& runs) {
  Json object = {{"v", 1}, {"runs", Json::array()}};
  for (const RunReport& run : runs) object["runs"].push_back(run_json(run));
  // A folder's name need not be UTF-8.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
