#include "tests/process/trained_run.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

// A length, that many bytes of JSON, the tensors' bytes.
std::map<std::string, std::string> tensors_of(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::string file = contents(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length));
  std::map<std::string, std::string> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t first = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = file.substr(sizeof length + length + first, end - first);
  }
  return tensors;
}

}  // namespace

std::vector<double> TrainedRun::values(const std::string& split, const std::string& field) const {
  std::vector<double> found;
  for (const auto& record : records)
    if (record["split"] == split) found.push_back(record[field]);
  return found;
}

TrainedRun trained_run(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const std::string output = folder.str() + "/run";
  std::vector<std::string> words = {"--output", output, "--log-interval", "1"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  TrainedRun run;
  run.ended = train(words);
  if (run.ended.code != 0) return run;
  std::ifstream file(output + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) run.records.push_back(Json::parse(line));
  run.summary = Json::parse(contents(output + "/summary.json"));
  run.best = tensors_of(output + "/best.safetensors");
  run.last = tensors_of(output + "/model.safetensors");
  run.last_ema = tensors_of(output + "/model-ema.safetensors");
  return run;
}

}  // namespace lockstep::testing
