#include "lockstep/bench/studies/environment_text.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/bench/statistics/median.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;

// A field as text, whatever its type; "unknown" where it is missing.
std::string field(const json& facts, const char* section, const char* name) {
  const auto found = facts.find(section);
  if (found == facts.end() || !found->is_object() || !found->contains(name)) return "unknown";
  const json& value = found->at(name);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string machine_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return concat(path.filename().string(), " is missing: the machine is not known\n");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const json facts = parse_strict_json(text, path.string());
  if (!facts.is_object()) throw DataError(concat(path.string(), ": is no JSON object"));
  return concat(
      "processor: ", field(facts, "processor", "model"),
      ", cores that may be used: ", field(facts, "processor", "cores_usable"),
      "\nsystem: ", field(facts, "system", "os"), ", ", field(facts, "system", "kernel"),
      "\nLockstep ", field(facts, "build", "lockstep"), ", LibTorch ",
      field(facts, "build", "libtorch"), ", ", field(facts, "build", "compiler"), ", ",
      field(facts, "build", "build_type"), "\n");
}

std::string samples_text(std::span<const Sample> samples) {
  std::vector<double> calibrations, others;
  std::string first, last;
  for (const Sample& sample : samples) {
    if (!sample.not_measurable.empty()) continue;
    if (first.empty() || sample.time < first) first = sample.time;
    last = std::max(last, sample.time);
    calibrations.push_back(1000 * sample.calibration_seconds);
    if (std::isfinite(sample.other_share)) others.push_back(sample.other_share);
  }
  if (calibrations.empty()) return "no sample yet\n";
  const auto [least, most] = std::minmax_element(calibrations.begin(), calibrations.end());
  std::string text = concat(
      calibrations.size(), " samples, begun from ", first, " to ", last,
      "\ncalibration before each: ", seconds_text(*least), " to ", seconds_text(*most),
      " ms, median ", seconds_text(median(calibrations)), "\n");
  if (others.empty()) return text + "CPU time of other processes: not known\n";
  return concat(
      text, "CPU time of other processes meanwhile: median ", percent_text(median(others)),
      " of the cores, most ", percent_text(*std::max_element(others.begin(), others.end())), "\n");
}

}  // namespace

std::string environment_text(const std::filesystem::path& file, std::span<const Sample> samples) {
  return machine_text(file) + samples_text(samples);
}

}  // namespace lockstep::bench
