#include "bench/study/study_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

std::string listed(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(concat(number));
  return joined(words, ",");
}

}  // namespace

std::string WaysRequest::text() const {
  std::string text =
      concat("--model ", model, plugin.empty() ? "" : " --plugin " + plugin, " --batch ",
          listed(batches), " --ways ", joined(ways, ","), " --precision ", joined(precisions, ","));
  if (!places.empty()) text += " --places " + listed(places);
  if (!schedules.empty()) text += " --schedule " + joined(schedules, ",");
  if (!train_flags.empty()) text += " -- " + joined(train_flags, " ");
  return text;
}

nlohmann::ordered_json to_json(const WaysRequest& request) {
  return {{"model", request.model}, {"plugin", request.plugin}, {"batches", request.batches},
      {"places", request.places}, {"ways", request.ways}, {"precisions", request.precisions},
      {"schedules", request.schedules}, {"train_flags", request.train_flags},
      {"images", request.images}, {"refused", request.refused}};
}

WaysRequest ways_of(const nlohmann::json& object) {
  WaysRequest request{.model = object.at("model").get<std::string>(),
      .plugin = object.at("plugin").get<std::string>(),
      .train_flags = object.value("train_flags", std::vector<std::string>()),
      .images = object.at("images").get<std::int64_t>()};
  object.at("batches").get_to(request.batches);
  object.at("places").get_to(request.places);
  object.at("ways").get_to(request.ways);
  object.at("precisions").get_to(request.precisions);
  object.at("schedules").get_to(request.schedules);
  object.at("refused").get_to(request.refused);
  return request;
}

std::string data_name(const std::string& data) { return data.substr(0, data.find(':')); }

std::string StudyOptions::data_of(
    const std::vector<std::string>& names, const std::string& otherwise) const {
  const auto found = std::ranges::find_if(data, [&](const std::string& each) {
    return std::ranges::find(names, data_name(each)) != names.end();
  });
  return found == data.end() ? otherwise : *found;
}

std::string StudyOptions::first_nodes(int count) const {
  const auto most = std::min(std::ssize(nodes), std::ptrdiff_t{count});
  return joined({nodes.begin(), nodes.begin() + most}, ",");
}

}  // namespace lockstep::bench
