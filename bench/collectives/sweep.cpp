#include "bench/collectives/sweep.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kElementBytes = 4;  // of float32
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
constexpr int kMostRepeats = 1'000'000;

std::int64_t whole_pieces(std::int64_t bytes, int ranks) {
  const std::int64_t piece = kElementBytes * ranks;
  return bytes / piece * piece;
}

template <typename Each>
bool has_twice(const std::vector<Each>& list) {
  return std::set<Each>(list.begin(), list.end()).size() < list.size();
}

// Of a backend that cannot stand beside others in one world.
void check_alone(const std::vector<std::string>& backends, const char* name, const char* reason) {
  const bool is_asked = std::ranges::find(backends, name) != backends.end();
  check(!is_asked || backends.size() == 1, "collectives: --backend ", name,
      " cannot be measured beside others, for ", reason, "; measure it by a command of its own");
}

void check_lists(const Sweep& sweep) {
  check(!sweep.collectives.empty(), "collectives: --op names no collective");
  check(!has_twice(sweep.collectives), "collectives: --op names one twice");
  check(!sweep.backends.empty(), "collectives: --backend names no backend");
  check(!has_twice(sweep.backends), "collectives: --backend names one twice");
  check_alone(sweep.backends, "threads", "its ranks are threads of one process");
  check_alone(sweep.backends, "hierarchical", "it keeps the port at which ranks meet");
}

void check_sizes(const Sweep& sweep, int ranks) {
  check(sweep.min_bytes >= kElementBytes * ranks,
      "collectives: --min-bytes must have a number of 4 bytes for each of ", ranks,
      " ranks: ", sweep.min_bytes);
  check(sweep.max_bytes >= sweep.min_bytes && sweep.max_bytes <= kMostBytes,
      "collectives: --max-bytes must be from --min-bytes, ", sweep.min_bytes,
      ", to 64G: ", sweep.max_bytes);
  check(sweep.factor >= 2 && sweep.factor <= 1024,
      "collectives: --factor must be 2 to 1024: ", sweep.factor);
}

constexpr std::int64_t kLongestMessage = std::int64_t{1} << 40;

Collective collective_of(const JsonFields& fields) {
  const auto found = find_collective(fields.text("op"));
  if (!found) fields.refuse("op", "be a collective");
  return *found;
}

std::vector<double> seconds_of(const JsonFields& fields, const char* key) {
  const std::vector<double> values = fields.numbers(key);
  const bool fits = !values.empty() && *std::ranges::min_element(values) > 0;
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

std::optional<Collective> find_collective(const std::string& name) {
  for (const auto& each : names_of(Collective{})) {
    if (name == each.name) return each.value;
  }
  return std::nullopt;
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kReduce:
    case Collective::kBroadcast:
      return 1;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return others;
  }
  throw std::logic_error("a collective without a bus factor");
}

double copy_share(Collective collective, int ranks) {
  const double size = ranks;
  switch (collective) {
    // A rank reads its share of every rank's tensor, and writes it into every rank's.
    case Collective::kAllReduce:
    // Every rank's output is as large as the message, and comes from as many bytes.
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return 1;
    // It reads as for all_reduce, and writes once.
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return (1 + 1 / size) / 2;
    // All but the root need a copy; all share the work.
    case Collective::kBroadcast:
      return (size - 1) / size;
  }
  throw std::logic_error("a collective without a share");
}

void check_sweep(const Sweep& sweep, int ranks) {
  check_lists(sweep);
  check(ranks > 1,
      "collectives: one rank alone has nobody to talk to; give --nproc-per-node 2 or more");
  check_sizes(sweep, ranks);
  check(sweep.warmup >= 1 && sweep.warmup <= kMostRepeats,
      "collectives: --warmup must be 1 or more: ", sweep.warmup);
  check(sweep.iterations >= 1 && sweep.iterations <= kMostRepeats,
      "collectives: --iterations must be 1 or more: ", sweep.iterations);
}

std::vector<std::int64_t> message_sizes(const Sweep& sweep, int ranks) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = sweep.min_bytes; bytes <= sweep.max_bytes; bytes *= sweep.factor) {
    sizes.push_back(whole_pieces(bytes, ranks));
  }
  return sizes;
}

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
    const auto [least, most] = std::ranges::minmax_element(line.seconds);
    table.add_row({name_of(line.collective), line.backend, line.group_memory ? "group" : "ordinary",
        std::to_string(line.bytes), std::to_string(line.calls),
        cell(line.median_seconds() * kMicro, 2), cell(*least * kMicro, 2), cell(*most * kMicro, 2),
        cell(line.algorithm_bandwidth() * kGiga, 3), cell(line.bus_bandwidth() * kGiga, 3),
        cell(line.median_copy_seconds() * kMicro, 2)});
  }
  return table.text();
}

}  // namespace lockstep::bench
