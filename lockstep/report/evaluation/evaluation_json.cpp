#include <nlohmann/json.hpp>

#include "lockstep/core/text.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/report/json_number.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json weights_json(const WeightsSource& weights) {
  return {{"file", printable_path(weights.file)}, {"which", weights.which},
      {"remark", printable_path(weights.remark)}};
}

Json classes_json(const EvaluationResult& result) {
  Json classes = Json::array();
  for (const Confusion::OfClass& of_class : result.confusion.of_class()) {
    Json object = {{"class", classes.size()}, {"name", result.class_names[classes.size()]},
        {"samples", of_class.samples}, {"right", of_class.right}};
    put_number(object, "accuracy", of_class.accuracy());
    classes.push_back(std::move(object));
  }
  return classes;
}

// A row for each class, in it a column for what its samples were taken for.
Json confusion_json(const Confusion& confusion) {
  if (confusion.classes() > kMostPairsWritten) return nullptr;
  Json rows = Json::array();
  for (std::int64_t label = 0; label < confusion.classes(); ++label) {
    Json row = Json::array();
    for (std::int64_t predicted = 0; predicted < confusion.classes(); ++predicted)
      row.push_back(confusion.count(label, predicted));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json worst_json(const std::vector<WorstSample>& worst) {
  Json samples = Json::array();
  for (const WorstSample& sample : worst) {
    const Judgement& own = sample.judgement;
    Json object = {{"index", own.index}, {"name", printable_path(sample.name)},
        {"class", own.label}, {"predicted", own.predicted}};
    put_number(object, "loss", own.loss);
    samples.push_back(std::move(object));
  }
  return samples;
}

}  // namespace

std::string evaluation_json(const EvaluationResult& result) {
  Json object = {{"v", 1}, {"output", "eval"}, {"model", result.model}, {"data", result.data},
      {"split", result.split}, {"precision", result.precision}, {"loss_name", result.loss},
      {"loss_plugin",
          result.loss_plugin.empty() ? Json(nullptr) : Json(printable_path(result.loss_plugin))},
      {"weights", weights_json(result.weights)}, {"samples", result.samples},
      {"skipped", result.skipped}};
  for (const ScoreName& score : kScores) put_number(object, score.name, result.scores.*score.value);
  object["classes"] = classes_json(result);
  object["confusion"] = confusion_json(result.confusion);
  object["worst"] = worst_json(result.worst);
  return object.dump();
}

}  // namespace lockstep::bench
