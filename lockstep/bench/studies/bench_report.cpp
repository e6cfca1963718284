#include "lockstep/bench/studies/bench_report.h"

#include <algorithm>

#include "lockstep/bench/experiment/sample_log.h"
#include "lockstep/bench/page/html_page.h"
#include "lockstep/bench/page/markdown.h"
#include "lockstep/bench/page/text.h"
#include "lockstep/bench/plot/svg.h"
#include "lockstep/bench/studies/data_parallel/results_file.h"
#include "lockstep/bench/studies/environment_text.h"
#include "lockstep/bench/studies/replace_file.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

page::Page page_of(const BenchReport& report) {
  page::Page page{
      .title = "Lockstep bench: " +
               (report.studies.size() == 1 ? report.studies.front().name : "all studies"),
      .sections = {},
      .environment = environment_text(report.folder / "environment.json", report.samples)};
  for (const Study& study : report.studies) {
    page.sections.push_back(study.tell(study, report.samples));
  }
  return page;
}

// The notebook of data-parallel appends such lines to a file of this name.
void write_results(const BenchReport& report) {
  std::string lines;
  for (const Sample& sample : report.samples) {
    if (sample.study == "data-parallel" && sample.worked()) lines += results_line(sample) + "\n";
  }
  if (!lines.empty()) replace_file(report.folder / "pytorch_results.txt", lines);
}

page::Section without_samples(page::Section section, const std::string& study) {
  std::erase_if(
      section.tables, [&](const page::Table& table) { return table.id == sample_table_id(study); });
  return section;
}

}  // namespace

int BenchReport::failures() const {
  return static_cast<int>(std::count_if(samples.begin(), samples.end(), [](const Sample& sample) {
    return !sample.failure.empty();
  }));
}

BenchReport read_bench_report(const fs::path& folder) {
  const auto request = read_request(folder);
  if (!request) throw DataError(concat(folder.string(), ": holds no bench.json; is it a bench's?"));
  BenchReport report{
      .folder = folder, .studies = request->make(), .samples = {}, .page = {}, .torn = {}};
  const fs::path samples = folder / "samples.jsonl";
  if (fs::exists(samples)) {  // else it was stopped before the first was done
    SampleFile file = read_samples(samples);
    report.samples = latest(file.samples);
    report.torn = file.torn;
  }
  report.page = page_of(report);
  return report;
}

void write_bench_report(const BenchReport& report) {
  fs::create_directories(report.folder / "figures");
  for (const page::Section& section : report.page.sections) {
    for (const plot::Figure& figure : section.figures) {
      replace_file(report.folder / "figures" / (figure.id + ".svg"), plot::to_svg(figure));
    }
  }
  replace_file(report.folder / "report.md", page::to_markdown(report.page));
  replace_file(report.folder / "report.html", page::to_html(report.page));
  write_results(report);
}

std::string bench_text(const BenchReport& report) {
  std::string text;
  for (std::size_t index = 0; index < report.studies.size(); ++index) {
    if (index > 0) text += "\n";
    text += page::to_text(without_samples(report.page.sections[index], report.studies[index].name));
  }
  if (!report.torn.empty()) text += report.torn + "\n";
  return text;
}

}  // namespace lockstep::bench
