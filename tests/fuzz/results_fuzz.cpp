#include "tests/fuzz/fuzz.h"

#include "bench/results_file/results_file.h"
#include "lockstep/report/page/page.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = lockstep::testing::text_of(data, size);
  lockstep::testing::is_taken([&] {
    const auto file = lockstep::bench::parse_results(text, "fuzz");
    const auto table = lockstep::bench::results_table({{"fuzz", file}});
    // A table can be made of whatever a file may say, and loses no line.
    const bool lost = table.rows.empty() && !file.lines.empty();
    lockstep::testing::require(!lost && !lockstep::page::to_text(table).empty());
  });
  return 0;
}
