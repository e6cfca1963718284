#include "bench/study/training_run.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <unistd.h>

#include "bench/study/study_options.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/data/dataset.h"
#include "lockstep/formats/idx.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

fs::path folder_of_digits(const std::string& data) {
  if (data == "fashion-mnist") return data::kFashionMnistDirectory;
  for (const std::string start : {"fashion-mnist:", "mnist:"}) {
    if (data.starts_with(start) && data.size() > start.size()) return data.substr(start.size());
  }
  throw InvalidArgument(
      concat("bench: --data must be fashion-mnist, fashion-mnist:DIR or mnist:DIR: ", data,
          data == "mnist" ? " (name the folder that holds its four files)" : ""));
}

// Reads a line that covers the steps after `before`.
TimedSteps steps_of(const MetricRecord& line, std::int64_t before, const std::string& file) {
  const auto count = line.step - before;
  const bool whole = count > 0 && line.step_ms && line.samples_per_s && *line.samples_per_s > 0;
  if (!whole) throw DataError(concat(file, ": has no time of step ", line.step));
  const double seconds_a_millisecond = static_cast<double>(count) / 1000;
  const double seconds = seconds_a_millisecond * *line.step_ms;
  return {.count = count,
      .seconds = seconds,
      .data_seconds = seconds_a_millisecond * line.data_ms.value_or(0),
      .comm_seconds = seconds_a_millisecond * line.comm_ms.value_or(0),
      .samples = *line.samples_per_s * seconds};
}

}  // namespace

Words spreading_flags(const std::string& way, int places) {
  if (way == "dp") return words_of("--parallel", way, "--places", places);
  // A rank that dies is a failure to record, not one to hide by starting again.
  if (way == "ddp" || way == "fsdp")
    return words_of("--parallel", way, "--nproc-per-node", places, "--max-restarts", 0);
  return {"--parallel", way};
}

StudyCell on_device(StudyCell cell, const std::string& device) {
  if (device.empty()) return cell;
  cell.id += "-" + device;
  cell.settings.push_back({"device", device});
  add_words(cell.command, words_of("--device", device));
  cell.on_cores = StudyOptions{.device = device}.on_cores();
  return cell;
}

SummaryFacts read_run_summary(const fs::path& run) {
  const auto path = run / "summary.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": the run left no summary"));
  return parse_summary({std::istreambuf_iterator<char>(file), {}}, path.string());
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::int64_t training_images(const std::string& data) {
  const fs::path folder = folder_of_digits(data);
  const std::string name = "train-labels-idx1-ubyte";
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(path)) return read_idx(path, 1).shape.front();
  }
  throw DataError(concat((folder / name).string(), "[.gz]: no such file; ",
      data == "fashion-mnist" ? "apt install dataset-fashion-mnist, or --data fashion-mnist:DIR"
                              : "name the folder that holds the four files of the set"));
}

std::int64_t machine_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const std::int64_t here = pages > 0 && page > 0 ? pages * page : 0;
  const auto limit = cgroup_memory_limit();
  if (!limit) return here;
  return here == 0 ? *limit : std::min(here, *limit);
}

TimedSteps& TimedSteps::operator+=(const TimedSteps& later) {
  count += later.count;
  seconds += later.seconds;
  data_seconds += later.data_seconds;
  comm_seconds += later.comm_seconds;
  samples += later.samples;
  return *this;
}

std::vector<TimedSteps> read_steps(const std::filesystem::path& file) {
  std::vector<TimedSteps> all;
  std::int64_t before = 0;
  for (const MetricLine& line : read_metrics(file).lines) {
    if (line.record.split != "train") continue;
    all.push_back(steps_of(line.record, before, file.string()));
    before = line.record.step;
  }
  return all;
}

double predicted_step(const plan::WholeStep& alone, const plan::Machine& machine,
    const plan::Way& way, double batch) {
  return predict(coarse_profile(alone), machine, way, batch).seconds;
}

}  // namespace lockstep::bench
