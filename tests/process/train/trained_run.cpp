#include "tests/process/train/trained_run.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>

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

TrainedRun trained_run(const std::string& flags) {
  const TemporaryFolder folder;
  const std::string output = folder.file("run");
  TrainedRun run;
  run.ended = train("--output " + output + " --log-interval 1 " + flags);
  if (run.ended.code() != 0) throw std::runtime_error("lockstep train failed: " + run.ended.err);
  run.records = json_lines(output + "/metrics.jsonl");
  run.summary = Json::parse(contents(output + "/summary.json"));
  run.best = tensors_of(output + "/best.safetensors");
  run.last = tensors_of(output + "/model.safetensors");
  run.last_ema = tensors_of(output + "/model-ema.safetensors");
  return run;
}

void expect_near(
    const std::vector<double>& values, const std::vector<double>& expected, std::size_t count) {
  ASSERT_EQ(values.size(), count);
  ASSERT_EQ(expected.size(), count);
  for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(values[i], expected[i], 1e-4) << i;
}

std::vector<Json> json_lines(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace lockstep::testing
