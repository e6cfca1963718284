#include "bench/collectives/sweep_line.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kLongestMessage = std::int64_t{1} << 40;

Collective collective_of(const JsonFields& fields) {
  const auto found = find_collective(fields.text("op"));
  if (!found) fields.refuse("op", "be a collective");
  return *found;
}

std::vector<double> seconds_of(const JsonFields& fields, const char* key) {
  const std::vector<double> values = fields.numbers(key);
  const bool fits = !values.empty() && *std::min_element(values.begin(), values.end()) > 0;
  if (!fits) fields.refuse(key, "be a list of seconds above 0");
  return values;
}

std::optional<double> core_seconds_of(const JsonFields& fields) {
  const auto seconds = fields.number_if("core_seconds");
  if (seconds && *seconds < 0) fields.refuse("core_seconds", "be 0 or more");
  return seconds;
}

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;

}  // namespace

double SweepLine::median_seconds() const { return median(seconds); }

double SweepLine::median_copy_seconds() const { return median(copy_seconds); }

double SweepLine::algorithm_bandwidth() const {
  return static_cast<double>(bytes) / median_seconds();
}

double SweepLine::bus_bandwidth() const {
  return algorithm_bandwidth() * bus_factor(collective, ranks);
}

std::string to_json(const SweepLine& line) {
  nlohmann::ordered_json object = {{"v", 1}, {"op", name_of(line.collective)},
      {"backend", line.backend}, {"memory", line.group_memory ? "group" : "ordinary"},
      {"ranks", line.ranks}, {"bytes", line.bytes}, {"calls", line.calls},
      {"seconds", line.median_seconds()}, {"algorithm_bandwidth", line.algorithm_bandwidth()},
      {"bus_bandwidth", line.bus_bandwidth()}, {"repeat_seconds", line.seconds},
      {"copy_seconds", line.copy_seconds}, {"checked", line.checked}};
  if (line.core_seconds) object["core_seconds"] = *line.core_seconds;
  return object.dump();
}

SweepLine parse_sweep_line(std::string_view text, const std::string& where) {
  const nlohmann::json object = parse_strict_json(text, where);
  const JsonFields fields(object, where);
  return {.collective = collective_of(fields),
      .backend = fields.text("backend"),
      .group_memory = fields.text("memory") == "group",
      .ranks = fields.small_count("ranks", 1),
      .bytes = fields.count("bytes", 1, kLongestMessage),
      .calls = fields.small_count("calls", 1),
      .seconds = seconds_of(fields, "repeat_seconds"),
      .copy_seconds = seconds_of(fields, "copy_seconds"),
      .core_seconds = core_seconds_of(fields),
      .checked = fields.flag_if("checked").value_or(false)};
}

std::vector<SweepLine> read_sweep(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": cannot be opened"));
  std::vector<SweepLine> lines;
  std::size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    lines.push_back(parse_sweep_line(text, concat(path.string(), ": line ", ++number)));
  }
  return lines;
}

std::string sweep_table(const std::vector<SweepLine>& lines) {
  TextTable table({"op", "backend", "memory", "bytes", "calls", "median [us]", "least [us]",
                      "most [us]", "algorithm [GB/s]", "bus [GB/s]", "copy [us]"},
      {true, true, true, false, false, false, false, false, false, false, false});
  for (const SweepLine& line : lines) {
    const auto [least, most] = std::minmax_element(line.seconds.begin(), line.seconds.end());
    table.add_row({name_of(line.collective), line.backend, line.group_memory ? "group" : "ordinary",
        std::to_string(line.bytes), std::to_string(line.calls),
        cell(line.median_seconds() * kMicro, 2), cell(*least * kMicro, 2), cell(*most * kMicro, 2),
        cell(line.algorithm_bandwidth() * kGiga, 3), cell(line.bus_bandwidth() * kGiga, 3),
        cell(line.median_copy_seconds() * kMicro, 2)});
  }
  return table.text();
}

}  // namespace lockstep::bench
