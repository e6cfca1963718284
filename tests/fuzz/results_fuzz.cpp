#include <cstdlib>
#include <string>

#include "bench/results_file/results_file.h"
#include "lockstep/core/error.h"
#include "lockstep/report/page/page.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto file = lockstep::bench::parse_results(text, "fuzz");
    const auto table = lockstep::bench::results_table({{"fuzz", file}});
    // A table can be made of whatever a file may say, and loses no line.
    const bool lost = table.rows.empty() && !file.lines.empty();
    if (lost || lockstep::bench::page::to_text(table).empty()) std::abort();
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
