#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/fuzz.h"

#include "lockstep/report/run/run_report.h"

namespace {

using lockstep::MetricLine;
using lockstep::MetricsFile;
using lockstep::RunReport;
using lockstep::testing::is_taken;
using lockstep::testing::require;

std::string text_of(const std::vector<MetricLine>& lines) {
  std::string text;
  for (const MetricLine& line : lines)
    text += lockstep::json_line(line.record, lockstep::utc_now()) + "\n";
  return text;
}

/// What was read is written, and reads the same again; a curve's curve is itself.
void check_round_trip(const MetricsFile& file) {
  const std::string text = text_of(file.lines);
  const MetricsFile again = lockstep::parse_metrics(text, "again");
  require(again.left_out.empty() && text_of(again.lines).size() == text.size());
  const auto curve = lockstep::merged(file.lines);
  require(curve.size() <= file.lines.size());
  require(lockstep::merged(curve).size() == curve.size());
}

/// Tables and JSON can be made of whatever a file may say.
void check_report(const MetricsFile& file) {
  RunReport run{.folder = {.path = "run", .metrics = file, .snapshots = {}}, .history = {}};
  run.history = lockstep::run_history(file.lines);
  require(!lockstep::report_text({run}).empty());
  require(!lockstep::report_text({run, run}).empty());
  require(nlohmann::json::accept(lockstep::report_json({run})));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = lockstep::testing::text_of(data, size);
  is_taken([&] {
    const MetricsFile file = lockstep::parse_metrics(text, "fuzz");
    check_round_trip(file);
    check_report(file);
  });
  is_taken([&] { lockstep::parse_summary(text, "fuzz"); });
  return 0;
}
