#include <string>

#include "tests/fuzz/fuzz.h"

#include "bench/experiment/sample.h"
#include "bench/experiment/study.h"

namespace {

using lockstep::bench::Sample;
using lockstep::bench::SampleFile;
using lockstep::testing::require;

std::string text_of(const std::vector<Sample>& samples) {
  std::string text;
  for (const Sample& sample : samples) text += to_json(sample) + "\n";
  return text;
}

/// What was read is written, and reads the same again.
void check_round_trip(const SampleFile& file, std::size_t size) {
  require(file.whole <= size);
  const std::string text = text_of(file.samples);
  const SampleFile again = lockstep::bench::parse_samples(text, "again");
  require(again.torn.empty() && again.whole == text.size() && text_of(again.samples) == text);
}

/// Results can be made of whatever a file may say.
void check_results(const SampleFile& file) {
  lockstep::bench::Study study;
  study.name = file.samples.empty() ? "" : file.samples.front().study;
  for (const Sample& sample : file.samples) study.cells.push_back({.id = sample.cell});
  const auto results = cell_results(study, file.samples);
  require(results.size() == file.samples.size());
  for (const auto& result : results) {
    for (const auto& [name, estimate] : result.estimates) {
      require(estimate.low <= estimate.median && estimate.median <= estimate.high);
      result.outlier_rounds(name);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = lockstep::testing::text_of(data, size);
  lockstep::testing::is_taken([&] {
    const SampleFile file = lockstep::bench::parse_samples(text, "fuzz");
    check_round_trip(file, size);
    check_results(file);
  });
  return 0;
}
