#include "lockstep/report/run/run_events.h"

#include <cstdint>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/formats/event_file.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/record/event_log.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

double begin_of(const RunReport& run) {
  for (const MetricLine& line : run.folder.metrics.lines)
    if (line.unix_seconds) return *line.unix_seconds;
  return 0;
}

// Also of `runs/first/` and of `.`.
std::string name_of_run(const RunReport& run) {
  const fs::path whole = fs::weakly_canonical(run.folder.path);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::vector<fs::path> event_files(const std::vector<RunReport>& runs, const fs::path& directory) {
  std::set<std::string> names;
  std::vector<fs::path> files;
  for (const RunReport& run : runs) {
    const std::string name = name_of_run(run);
    check(!name.empty(),
        "report: this run's folder has no name to give its events: ", run.folder.path.string());
    check(names.insert(name).second, "report: --tensorboard names events by a run's folder, and ",
        "two of them are called ", name, "; report them apart, each into a DIR of its own");
    const fs::path folder = directory / name;
    check(!fs::exists(folder / "metrics.jsonl"), "report: --tensorboard would write into a run, ",
        folder.string(), "; name another DIR");
    files.push_back(folder / event_file_name(static_cast<std::int64_t>(begin_of(run))));
  }
  return files;
}

}  // namespace

std::string events_of_run(const RunReport& run) {
  double time = begin_of(run);
  std::string events = version_event({time});
  for (const MetricLine& line : merged(run.folder.metrics.lines)) {
    if (line.record.rank != 0) continue;
    time = line.unix_seconds.value_or(time);
    events += scalars_event({time, line.record.step}, scalars_of(line.record));
  }
  return events;
}

std::vector<fs::path> write_run_events(
    const std::vector<RunReport>& runs, const fs::path& directory) {
  const std::vector<fs::path> files = event_files(runs, directory);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    make_folders(files[i].parent_path());
    replace_file(files[i], events_of_run(runs[i]));
  }
  return files;
}

}  // namespace lockstep::bench
