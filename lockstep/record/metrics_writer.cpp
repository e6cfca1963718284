#include "lockstep/record/metrics_writer.h"

#include <utility>

#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

std::string file_in_new_folder(const std::string& run, const char* name) {
  make_folders(run);
  return run + "/" + name;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& run, const MetricsWriterOptions& options)
    : run_(run), log_(file_in_new_folder(run, "metrics.jsonl"), options.goes_on) {
  if (options.tensorboard) events_.emplace(run, options.steps);
}

void MetricsWriter::append(MetricRecord record) {
  record.restart = log_.restarts();
  log_.append(record);
  if (events_) events_->append(record);
}

void MetricsWriter::flush() {
  if (events_) events_->flush();
  log_.flush();
}

std::string MetricsWriter::take_warning() {
  std::string warning = log_.take_warning();
  return warning.empty() && events_ ? events_->take_warning() : warning;
}

void MetricsWriter::finish(const RunSummary& summary) const {
  replace_file(run_ + "/summary.json", to_json(summary) + "\n");
}

}  // namespace lockstep
