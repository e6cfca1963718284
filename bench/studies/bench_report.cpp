#include "bench/studies/bench_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/experiment/sample.h"
#include "bench/results_file/results_file.h"
#include "bench/statistics/estimate_text.h"
#include "bench/study/report_of.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

// A field as text, whatever its type; "unknown" where it is missing.
std::string field(const nlohmann::json& facts, const char* section, const char* name) {
  const auto found = facts.find(section);
  if (found == facts.end() || !found->is_object() || !found->contains(name)) return "unknown";
  const nlohmann::json& value = found->at(name);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string machine_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return concat(path.filename().string(), " is missing: the machine is not known\n");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json facts = parse_strict_json(text, path.string());
  if (!facts.is_object()) throw DataError(concat(path.string(), ": is not a JSON object"));
  return concat("processor: ", field(facts, "processor", "model"),
      ", cores that may be used: ", field(facts, "processor", "cores_usable"),
      "\nsystem: ", field(facts, "system", "os"), ", ", field(facts, "system", "kernel"),
      "\nLockstep ", field(facts, "build", "lockstep"), ", LibTorch ",
      field(facts, "build", "libtorch"), ", ", field(facts, "build", "compiler"), ", ",
      field(facts, "build", "build_type"), "\n");
}

std::string samples_text(std::span<const Sample> samples) {
  std::vector<double> calibrations, others;
  std::string first, last;
  for (const Sample& sample : samples) {
    if (!sample.not_measurable.empty()) continue;
    if (first.empty() || sample.time < first) first = sample.time;
    last = std::max(last, sample.time);
    calibrations.push_back(1000 * sample.calibration_seconds);
    if (std::isfinite(sample.other_share)) others.push_back(sample.other_share);
  }
  if (calibrations.empty()) return "no sample yet\n";
  const auto [least, most] = std::ranges::minmax_element(calibrations);
  std::string text = concat(calibrations.size(), " samples, begun from ", first, " to ", last,
      "\ncalibration before each: ", seconds_text(*least), " to ", seconds_text(*most),
      " ms, median ", seconds_text(median(calibrations)), "\n");
  if (others.empty()) return text + "CPU time of other processes: not known\n";
  return concat(text, "CPU time of other processes meanwhile: median ",
      percent_text(median(others)), " of the cores, most ",
      percent_text(*std::ranges::max_element(others)), "\n");
}

page::Page page_of(const BenchReport& report) {
  page::Page page{
      .title = "Lockstep bench: " +
               (report.studies.size() == 1 ? report.studies.front().name : "all studies"),
      .sections = {},
      .environment = environment_text(report.folder / "environment.json", report.samples)};
  for (const Study& study : report.studies) {
    page.sections.push_back(study.report(study, report.samples));
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

Json json_of(const Estimate& estimate) {
  return {{"median", estimate.median}, {"low", estimate.low}, {"high", estimate.high},
      {"confidence", estimate.confidence}, {"count", estimate.count}};
}

Json json_of(const CellResult& result) {
  Json settings = Json::object();
  for (const Setting& setting : result.cell.settings) settings[setting.name] = setting.value;
  Json values = Json::object();
  for (const auto& [name, estimate] : result.estimates) values[name] = json_of(estimate);
  return {{"id", result.cell.id}, {"settings", settings}, {"places", result.cell.places},
      {"oversubscribed", result.oversubscribed}, {"samples", result.samples.size()},
      {"failures", result.failures},
      {"reason", result.reason.empty() ? Json(nullptr) : Json(result.reason)}, {"values", values}};
}

}  // namespace

std::string environment_text(const std::filesystem::path& file, std::span<const Sample> samples) {
  return machine_text(file) + samples_text(samples);
}

int BenchReport::failures() const {
  return static_cast<int>(
      std::ranges::count_if(samples, [](const Sample& sample) { return !sample.failure.empty(); }));
}

BenchReport read_bench_report(const fs::path& folder) {
  const auto request = read_request(folder);
  if (!request)
    throw DataError(concat(folder.string(), ": has no bench.json; is it a bench folder?"));
  BenchReport report{
      .folder = folder, .studies = request->make(), .samples = {}, .page = {}, .torn = {}};
  const fs::path samples = folder / kSamplesFile;
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

std::string bench_json(const BenchReport& report) {
  Json studies = Json::array();
  for (std::size_t index = 0; index < report.studies.size(); ++index) {
    Json cells = Json::array();
    for (const auto& result : cell_results(report.studies[index], report.samples)) {
      cells.push_back(json_of(result));
    }
    const page::Conclusion& conclusion = report.page.sections[index].conclusion;
    studies.push_back({{"study", report.studies[index].name}, {"conclusion", conclusion.answer},
        {"remarks", conclusion.remarks}, {"cells", cells}});
  }
  const Json object = {{"v", 1}, {"output", report.folder.string()},
      {"failures", report.failures()}, {"studies", studies}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
