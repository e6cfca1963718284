#include "lockstep/train/record/run_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/simd/instructions.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep {
namespace {

constexpr double kWorthAWarning = 0.2;         // of a step
constexpr std::size_t kRecordsTogether = 4;    // at most, between two collectives
constexpr double kShortestWaitSeconds = 1e-3;  // below it no worker could help

// Ranks that are threads have one process, in which one of them reports.
std::optional<ProgressPage> page_of(const ProcessGroup& world) {
  if (world.backend_name() == "threads" && world.rank() != 0) return std::nullopt;
  return ProgressPage::from_environment();
}

// What a run computed with, as one line of JSON: versions, processor, ranks, threads.
std::string environment_report(const ProcessGroup& world) {
  const nlohmann::ordered_json report = {{"v", 1}, {"lockstep", LOCKSTEP_VERSION},
      {"libtorch", TORCH_VERSION}, {"compiler", __VERSION__}, {"host", host_name()},
      {"cpu", simd::processor_name()}, {"cores", usable_cpu_count()}, {"world_size", world.size()},
      {"backend", world.backend_name()}, {"threads", at::get_num_threads()}};
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

RunLog::RunLog(const TrainOptions& options, const ProcessGroup& world,
    const std::vector<std::string>& command, const Datasets& data, bool replaces,
    std::int64_t steps)
    : page_(page_of(world)),
      bad_images_(data.folders),
      progress_(world.rank() == 0 ? options.progress : ProgressStyle::kNone) {
  const auto make_folder = [&] {
    if (world.rank() != 0) return;
    recorder_.emplace(options, command, environment_report(world), replaces, steps);
    SnapshotFolder(options.output).remove_leftovers();
  };
  work_patiently(make_folder, world);
}

void RunLog::step(std::int64_t steps) {
  progress_.step();
  if (page_) page_->report(steps);
}

void RunLog::record(const MetricRecord& record) {
  last_records_.push_back(record);
  if (last_records_.size() > kRecordsTogether) last_records_.erase(last_records_.begin());
  if (!recorder_) return;
  recorder_->append(record);
  const std::string warning = recorder_->take_warning();
  if (!warning.empty()) warn(warning);
}

void RunLog::warn_of_bad_images() {
  for (const std::string& line : bad_images_.news()) warn(line);
}

void RunLog::warn_of_slow_loader(const MeterReading& reading, int workers) {
  if (has_warned_of_loader_ || !recorder_) return;
  if (const auto warning = slow_loader_warning(reading, workers)) {
    warn(*warning);
    has_warned_of_loader_ = true;
  }
}

std::optional<double> RunLog::recovery_seconds() const {
  return page_ ? page_->recovery_seconds() : std::nullopt;
}

std::optional<std::string> slow_loader_warning(const MeterReading& reading, int workers) {
  const double share = reading.data_seconds / reading.seconds;
  const double wait = reading.data_seconds / static_cast<double>(reading.steps);
  if (!(share >= kWorthAWarning) || wait < kShortestWaitSeconds) return std::nullopt;
  return concat("steps wait for samples: ", std::lround(100 * share), " % of their time (data_ms ",
      std::lround(1e3 * wait), "), with --workers ", workers,
      "; more of them help if cores are idle, else a cheaper --augment or smaller images");
}

BadImageWatch::BadImageWatch(std::vector<std::shared_ptr<const data::FolderSamples>> folders)
    : folders_(std::move(folders)) {}

std::vector<std::string> BadImageWatch::news() {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    for (const auto& [index, reason] : folders_[i]->bad()) {
      if (reported_.emplace(i, index).second) lines.push_back(concat("skipped: ", reason));
    }
  }
  return lines;
}

std::int64_t BadImageWatch::count(const ProcessGroup& world) const {
  std::int64_t total = 0;
  for (const auto& folder : folders_) {
    const torch::Tensor is_bad = at::zeros({folder->size()}, on_host(torch::kByte));
    for (const auto& [index, reason] : folder->bad()) is_bad[index].fill_(1);
    world.all_reduce(is_bad, ReduceOp::kMax).wait();
    total += is_bad.sum().item<std::int64_t>();
  }
  return total;
}

}  // namespace lockstep
