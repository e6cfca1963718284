#include "lockstep/bench/collectives/sweep_line.h"

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

/// Takes what a line must have.
class SweepFields {
 public:
  SweepFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) refuse("it is no JSON object");
  }

  Collective collective() const {
    const auto found = find_collective(text("op"));
    if (!found) refuse(concat("'op' is no collective: ", at("op").dump()));
    return *found;
  }

  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) refuse(concat("'", name, "' must be a text: ", value.dump()));
    return value.get<std::string>();
  }

  std::int64_t count(const char* name) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
    const Json& value = at(name);
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
                      value.get<std::uint64_t>() <= kMost;
    if (!fits) refuse(concat("'", name, "' must be a whole number above 0: ", value.dump()));
    return value.get<std::int64_t>();
  }

  std::vector<double> seconds(const char* name) const {
    const Json& list = at(name);
    if (!list.is_array() || list.empty()) refuse(concat("'", name, "' must be a list of seconds"));
    std::vector<double> values;
    for (const Json& value : list) {
      const bool fits =
          value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
      if (!fits) refuse(concat("'", name, "' must hold seconds above 0: ", value.dump()));
      values.push_back(value.get<double>());
    }
    return values;
  }

  bool flag(const char* name) const { return object_.contains(name) && object_.at(name) == true; }

 private:
  const Json& at(const char* name) const {
    if (!object_.contains(name)) refuse(concat("'", name, "' is missing"));
    return object_.at(name);
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw DataError(where_ + ": " + reason);
  }

  const Json& object_;
  std::string where_;
};

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
  const nlohmann::ordered_json object = {
      {"v", 1},
      {"op", name_of(line.collective)},
      {"backend", line.backend},
      {"memory", line.group_memory ? "group" : "ordinary"},
      {"ranks", line.ranks},
      {"bytes", line.bytes},
      {"calls", line.calls},
      {"seconds", line.median_seconds()},
      {"algorithm_bandwidth", line.algorithm_bandwidth()},
      {"bus_bandwidth", line.bus_bandwidth()},
      {"repeat_seconds", line.seconds},
      {"copy_seconds", line.copy_seconds},
      {"checked", line.checked}};
  return object.dump();
}

SweepLine parse_sweep_line(std::string_view text, const std::string& where) {
  const Json object = parse_strict_json(text, where);
  const SweepFields fields(object, where);
  return {
      .collective = fields.collective(),
      .backend = fields.text("backend"),
      .group_memory = fields.text("memory") == "group",
      .ranks = static_cast<int>(fields.count("ranks")),
      .bytes = fields.count("bytes"),
      .calls = static_cast<int>(fields.count("calls")),
      .seconds = fields.seconds("repeat_seconds"),
      .copy_seconds = fields.seconds("copy_seconds"),
      .checked = fields.flag("checked")};
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

}  // namespace lockstep::bench
