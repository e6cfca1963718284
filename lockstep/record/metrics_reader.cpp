#include "lockstep/record/metrics_reader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;
constexpr std::int64_t kMetricsVersion = 1;

MetricLine metric_line(const JsonFields& fields) {
  if (fields.count("v") != kMetricsVersion)
    fields.refuse("v", concat("be ", kMetricsVersion,
                           ", the version that this program reads; a newer one may read both"));
  MetricLine line;
  MetricRecord& record = line.record;
  record.epoch = fields.count("epoch");
  record.rank = fields.small_count("rank");
  record.restart = fields.small_count("restart");
  record.step = fields.count("step");
  record.split = fields.text("split");
  record.elapsed = fields.number_if("elapsed").value_or(0);
  std::vector<std::string> nonfinite;
  if (fields.has("nonfinite")) nonfinite = fields.texts("nonfinite");
  const auto number = [&](const char* name) {
    if (std::ranges::find(nonfinite, name) == nonfinite.end()) return fields.number_if(name);
    if (fields.has(name)) fields.refuse(name, "be null, as it is listed in nonfinite");
    return std::optional(std::numeric_limits<double>::quiet_NaN());
  };
  for (const ScoreName& score : kScores) record.scores.*score.value = number(score.name);
  for (const RateName& rate : kRates) record.*rate.value = number(rate.name);
  for (const auto& [name, value] : fields.items().items()) {
    const bool is_nonfinite = std::ranges::find(nonfinite, name) != nonfinite.end();
    if (is_free_name(name) && (is_nonfinite ? value.is_null() : value.is_number()))
      record.scores.more[name] = number(name.c_str()).value();
  }
  if (const auto time = fields.text_if("time")) {
    line.unix_seconds = parse_utc(*time);
    if (!line.unix_seconds) fields.refuse("time", concat("be like ", utc_now()));
  }
  return line;
}

// Nothing if it is not JSON.
std::optional<MetricLine> read_line(std::string_view text, const std::string& where) {
  if (text.size() > kLongestLine)
    throw DataError(concat(where, ": ", text.size(), " bytes are too many for a line"));
  if (!nlohmann::json::accept(text)) return std::nullopt;
  const nlohmann::json object = parse_strict_json(text, where);
  return metric_line(JsonFields(object, where));
}

/// A reader of a file's lines, one after the other, that decides which torn ones may be left out.
class FileReader {
 public:
  explicit FileReader(const std::string& file) : file_(file) {}

  void add(std::string_view text) {
    ++number_;
    auto line = read_line(text, where(number_));
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
