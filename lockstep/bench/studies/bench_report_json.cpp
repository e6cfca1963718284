#include <cmath>

#include <nlohmann/json.hpp>

#include "lockstep/bench/experiment/results.h"
#include "lockstep/bench/studies/bench_report.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Estimate& estimate) {
  return {
      {"median", estimate.median},
      {"low", estimate.low},
      {"high", estimate.high},
      {"confidence", estimate.confidence},
      {"count", estimate.count}};
}

Json json_of(const CellResult& result) {
  Json settings = Json::object();
  for (const Setting& setting : result.cell.settings) settings[setting.name] = setting.value;
  Json values = Json::object();
  for (const auto& [name, estimate] : result.estimates) values[name] = json_of(estimate);
  return {
      {"id", result.cell.id},
      {"settings", settings},
      {"places", result.cell.places},
      {"oversubscribed", result.oversubscribed},
      {"samples", result.samples.size()},
      {"failures", result.failures},
      {"reason", result.reason.empty() ? Json(nullptr) : Json(result.reason)},
      {"values", values}};
}

}  // namespace

std::string bench_json(const BenchReport& report) {
  Json studies = Json::array();
  for (std::size_t index = 0; index < report.studies.size(); ++index) {
    Json cells = Json::array();
    for (const auto& result : cell_results(report.studies[index], report.samples)) {
      cells.push_back(json_of(result));
    }
    const page::Conclusion& conclusion = report.page.sections[index].conclusion;
    studies.push_back(
        {{"study", report.studies[index].name},
         {"conclusion", conclusion.answer},
         {"remarks", conclusion.remarks},
         {"cells", cells}});
  }
  const Json object = {
      {"v", 1},
      {"output", report.folder.string()},
      {"failures", report.failures()},
      {"studies", studies}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
