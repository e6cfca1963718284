#include "lockstep/record/metrics_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/input_file.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;

/// A reader of a file's lines, one after the other, that decides which torn ones may be left out.
class FileReader {
 public:
  explicit FileReader(const std::string& file) : file_(file) {}

  void add(std::string_view text) {
    ++number_;
    if (text.size() > kLongestLine) {
      throw DataError(concat(where(number_), ": ", text.size(), " bytes are too many for a line"));
    }
    auto line = parse_metric_line(text, where(number_));
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

MetricsFile read_metrics(const std::filesystem::path& path) {
  InputFile file(path);
  std::string text;
  std::array<std::uint8_t, 1 << 16> block;
  for (std::size_t size = file.read(block); size > 0; size = file.read(block)) {
    text.append(reinterpret_cast<const char*>(block.data()), size);
  }
  return parse_metrics(text, file.name());
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

}  // namespace lockstep::bench
