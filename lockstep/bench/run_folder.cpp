#include "lockstep/bench/run_folder.h"

#include <algorithm>
#include <array>

#include "lockstep/core/error.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/snapshot/snapshot_names.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestSummary = 64 << 20;

std::string text_of(const fs::path& path) {
  InputFile file(path);
  std::string text;
  std::array<std::uint8_t, 1 << 16> block;
  for (std::size_t size = file.read(block); size > 0; size = file.read(block)) {
    text.append(reinterpret_cast<const char*>(block.data()), size);
    if (text.size() > kLargestSummary) {
      throw DataError(concat(path.string(), ": has more than ", kLargestSummary, " bytes"));
    }
  }
  return text;
}

void find_snapshots(RunFolder& run) {
  const fs::path folder = run.path / kSnapshots;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::is_regular_file(entry.path() / kManifest, none)) {
      run.snapshots.push_back(*step);
    }
  }
  std::sort(run.snapshots.begin(), run.snapshots.end());
  if (!fs::is_regular_file(folder / kBest, none)) return;
  std::string best = text_of(folder / kBest);
  if (best.ends_with('\n')) best.pop_back();
  run.best_snapshot = step_of(best);
}

}  // namespace

RunFolder read_run_folder(const fs::path& path) {
  RunFolder run{.path = path, .metrics = {}, .snapshots = {}};
  if (!fs::exists(path)) throw DataError(concat(path.string(), ": there is no such folder"));
  if (!fs::exists(path / "metrics.jsonl")) {
    throw DataError(concat(path.string(), ": holds no metrics.jsonl, so it is no run's folder"));
  }
  run.metrics = read_metrics(path / "metrics.jsonl");
  const fs::path summary = path / "summary.json";
  if (fs::exists(summary)) run.summary = parse_summary(text_of(summary), summary.string());
  find_snapshots(run);
  return run;
}

}  // namespace lockstep::bench
