#include "lockstep/record/metrics_reader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestLine = 1 << 16;
constexpr int kDeepest = 16;  // of values under keys that this version does not know
constexpr std::int64_t kMetricsVersion = 1;

const char* kind_of(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "a truth value";
  return value.is_null() ? "null" : "a number";
}

/// A reader of one line, an object.
class LineReader {
 public:
  explicit LineReader(const std::string& where) : where_(where) {}

  /// Returns nothing if it is not JSON.
  std::optional<MetricLine> read(std::string_view text) {
    std::set<std::string> keys;
    object_ = json::parse(
        text,
        [&](int depth, json::parse_event_t event, const json& parsed) {
          const bool is_start = event == json::parse_event_t::object_start ||
                                event == json::parse_event_t::array_start;
          if (is_start && depth >= kDeepest) refuse("more than ", kDeepest, " levels deep");
          if (event == json::parse_event_t::key && depth == 1 &&
              !keys.insert(parsed.get<std::string>()).second)
            refuse("the key ", printable(parsed.get<std::string>()), " comes twice");
          return true;
        },
        /*allow_exceptions=*/false);
    if (object_.is_discarded()) return std::nullopt;
    if (!object_.is_object()) refuse(kind_of(object_), ", not an object");
    return line();
  }

 private:
  MetricLine line() const {
    const json* const version = find("v");
    if (version != nullptr && version->is_number_unsigned() && *version != kMetricsVersion)
      refuse("v is ", *version, "; this program reads ", kMetricsVersion,
          ", a newer one may read both");
    MetricLine line;
    MetricRecord& record = line.record;
    constexpr std::int64_t kMostRanks = std::numeric_limits<int>::max();
    record.epoch = count("epoch");
    record.rank = static_cast<int>(count("rank", kMostRanks));
    record.restart = static_cast<int>(count("restart", kMostRanks));
    record.step = count("step");
    count("v");
    record.split = text("split");
    record.elapsed = number("elapsed").value_or(0);
    const auto nonfinite = nonfinite_names();
    for (const ScoreName& score : kScores)
      record.scores.*score.value = number(score.name, nonfinite);
    for (const RateName& rate : kRates) record.*rate.value = number(rate.name, nonfinite);
    if (const json* const time = find("time"); time != nullptr && !time->is_null()) {
      line.unix_seconds = parse_utc(text("time"));
      if (!line.unix_seconds) refuse("time is ", printable(text("time")), ", not like ", utc_now());
    }
    return line;
  }

  std::vector<std::string> nonfinite_names() const {
    const json* const names = find("nonfinite");
    if (names == nullptr) return {};
    if (!names->is_array()) refuse("nonfinite is ", kind_of(*names));
    std::vector<std::string> texts;
    for (const json& name : *names)
      if (name.is_string()) texts.push_back(name.get<std::string>());
    return texts;
  }

  std::optional<double> number(
      const char* name, const std::vector<std::string>& nonfinite = {}) const {
    const json* const value = find(name);
    const bool is_absent = value == nullptr || value->is_null();
    if (!is_absent && !value->is_number()) refuse(name, " is ", kind_of(*value));
    const bool is_nonfinite = std::ranges::find(nonfinite, name) != nonfinite.end();
    if (!is_absent && is_nonfinite)
      refuse(name, " is ", value->get<double>(), " and is listed in nonfinite");
    if (is_nonfinite) return std::numeric_limits<double>::quiet_NaN();
    return is_absent ? std::nullopt : std::optional(value->get<double>());
  }

  std::int64_t count(
      const char* name, std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    const json& value = at(name);
    if (!value.is_number()) refuse(name, " is ", kind_of(value));
    if (value.is_number_float())
      refuse(name, " is ", printable(value.dump()), ", not a whole number");
    if (!value.is_number_unsigned()) refuse(name, " is ", value, ", less than 0");
    if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      refuse(name, " is ", value, ", more than ", most);
    return value.get<std::int64_t>();
  }

  std::string text(const char* name) const {
    const json& value = at(name);
    if (!value.is_string()) refuse(name, " is ", kind_of(value));
    return value.get<std::string>();
  }

  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  const json& at(const char* name) const {
    const json* const value = find(name);
    if (value == nullptr) refuse("the key \"", name, "\" is missing");
    return *value;
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... reason) const {
    throw DataError(concat(where_, ": ", reason...));
  }

  const std::string& where_;
  json object_;
};

/// A reader of a file's lines, one after the other, that decides which torn ones may be left out.
class FileReader {
 public:
  explicit FileReader(const std::string& file) : file_(file) {}

  void add(std::string_view text) {
    ++number_;
    if (text.size() > kLongestLine) {
      throw DataError(concat(where(number_), ": ", text.size(), " bytes are too many for a line"));
    }
    auto line = LineReader(where(number_)).read(text);
    if (!line) {
      torn_.push_back(number_);
      return;
    }
    // A line that one attempt tore is followed by the first line of the next attempt, if there is
    // one.
    leave_torn_out(line->record.restart > restart_ ? torn_.size() : 0);
    restart_ = std::max(restart_, line->record.restart);
    result_.lines.push_back(std::move(*line));
  }

  MetricsFile finish() {
    // Each attempt that a full disk ended may have torn one; a file of nothing else has no metrics.
    leave_torn_out(result_.lines.empty() ? 1 : torn_.size());
    return std::move(result_);
  }

 private:
  void leave_torn_out(std::size_t most) {
    if (torn_.size() > most) {
      throw DataError(concat(where(torn_.front()), ": is not JSON in UTF-8"));
    }
    for (const std::size_t line : torn_) {
      result_.left_out.push_back(
          concat(where(line), ": incomplete because its writer died; skipped"));
    }
    torn_.clear();
  }

  std::string where(std::size_t line) const { return concat(file_, ": line ", line); }

  const std::string& file_;
  MetricsFile result_;
  std::size_t number_ = 0;
  std::vector<std::size_t> torn_;  // numbers of the lines since the last good one
  int restart_ = 0;
};

}  // namespace

MetricsFile parse_metrics(std::string_view text, const std::string& file) {
  FileReader reader(file);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.add(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

std::string text_of_run_file(const std::filesystem::path& path, std::size_t most) {
  InputFile file(path);
  std::string text;
  std::array<std::uint8_t, 1 << 16> block;
  for (std::size_t size = file.read(block); size > 0; size = file.read(block)) {
    text.append(reinterpret_cast<const char*>(block.data()), size);
    if (text.size() > most)
      throw DataError(concat(path.string(), ": has more than ", most, " bytes"));
  }
  return text;
}

MetricsFile read_metrics(const std::filesystem::path& path) {
  return parse_metrics(text_of_run_file(path, std::string::npos), path.string());
}

std::vector<MetricLine> merged(const std::vector<MetricLine>& lines) {
  std::map<std::tuple<int, std::int64_t, std::string>, const MetricLine*> newest;
  for (const MetricLine& line : lines) {
    const MetricRecord& record = line.record;
    auto& place = newest[{record.rank, record.step, record.split}];
    if (place == nullptr || record.restart >= place->record.restart) place = &line;
  }
  std::vector<MetricLine> curve;
  for (const auto& [key, line] : newest) curve.push_back(*line);
  return curve;
}

std::optional<double> parse_utc(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.dddZ";
  const auto fits = [](char form, char letter) {
    return form == 'd' ? letter >= '0' && letter <= '9' : letter == form;
  };
  if (!std::equal(kForm.begin(), kForm.end(), text.begin(), text.end(), fits)) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    return *parse_number<int>(std::string_view(text).substr(at, digits));
  };
  using namespace std::chrono;
  const year_month_day date(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
      day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok()) return std::nullopt;
  const auto days = static_cast<double>(sys_days(date).time_since_epoch().count());
  return days * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2) +
         number(20, 3) / 1000.0;
}

}  // namespace lockstep
