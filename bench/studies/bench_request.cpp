#include "bench/studies/bench_request.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "bench/studies/collectives.h"
#include "bench/studies/data_parallel.h"
#include "bench/studies/ddp_scaling.h"
#include "bench/studies/language_model.h"
#include "bench/studies/pipeline.h"
#include "bench/studies/scale_out.h"
#include "bench/studies/throughput.h"
#include "bench/studies/ways.h"
#include "bench/study/report_of.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {
namespace {

constexpr int kVersion = 1;
// Six samples hold a median between them with 97 %.
constexpr int kRoundsInBudget = 6;
// A sample of the quick grid takes seconds, so one with so much work takes hours.
constexpr double kMostWork = 10'000;

BenchRequest request_of(const nlohmann::json& object, const std::string& file) {
  const int version = object.at("v").get<int>();
  if (version != kVersion)
    throw DataError(concat(file, ": v is ", version, "; this program reads ", kVersion));
  return {.studies = object.at("studies").get<std::vector<std::string>>(),
      .options = {.full = object.at("full").get<bool>(),
          .cores = object.at("cores").get<int>(),
          .gpus = object.contains("gpus") ? std::optional(object["gpus"].get<int>()) : std::nullopt,
          .data = object.at("data").get<std::vector<std::string>>(),
          .device = object.value("device", ""),
          .nodes = object.at("nodes").get<std::vector<std::string>>(),
          .rounds = object.at("rounds").get<int>(),
          .work = object.value("work", 1),
          .pretrained = object.value("pretrained", ""),
          .pretrains = object.value("pretrains", false),
          .ways = object.contains("ways") ? ways_of(object.at("ways")) : WaysRequest()}};
}

template <typename Value>
void check_same(const char* what, const Value& before, const Value& now) {
  check(before == now, "bench: --output holds a bench with another ", what, ": '", before,
      "' there, '", now,
      "' now; repeat the original request to continue it, or name another folder");
}

// Beside the same study on another device: with names of its own.
Study named_by_device(Study study, const std::string& device) {
  study.name += "-" + device;
  study.title += ", on " + device;
  study.report = [of_one = study.report, device](
                     const Study& whole, std::span<const Sample> samples) {
    page::Section section = of_one(whole, samples);
    for (page::Table& table : section.tables)
      if (table.id != sample_table_id(whole.name)) table.id += "-" + device;
    for (plot::Figure& figure : section.figures) figure.id += "-" + device;
    return section;
  };
  return study;
}

// Each would fail, in every round.
Study with_gpus_enough(Study study, const StudyOptions& options) {
  if (options.device != "cuda" || !options.gpus || !options.nodes.empty()) return study;
  for (StudyCell& cell : study.cells)
    if (cell.places > *options.gpus && cell.not_measurable.empty())
      cell.not_measurable = concat("needs ", cell.places, " GPUs; this host has ", *options.gpus);
  return study;
}

std::vector<Study> made_of(const StudyEntry& entry, StudyOptions options) {
  const std::vector<std::string> devices = split(options.device, ',');
  if (!entry.trains) return {entry.make(options)};
  if (devices.size() < 2) return {with_gpus_enough(entry.make(options), options)};
  std::vector<Study> made;
  for (const std::string& device : devices) {
    options.device = device;
    made.push_back(named_by_device(with_gpus_enough(entry.make(options), options), device));
  }
  return made;
}

std::vector<std::vector<std::string>> commands_of(const BenchRequest& request) {
  std::vector<std::vector<std::string>> commands;
  for (const Study& study : request.make())
    for (const StudyCell& cell : study.cells) commands.push_back(cell.command);
  return commands;
}

}  // namespace

const std::vector<StudyEntry>& study_catalogue() {
  static const std::vector<StudyEntry> kStudies{
      {.name = "data-parallel",
          .about =
              "epoch times of two nets on Fashion-MNIST: 1, 2, 4 places, DataParallel against DDP",
          .data = {"fashion-mnist", "mnist"},
          .make = data_parallel::make_study,
          .prepare = data_parallel::prepare,
          .quick_seconds = 15},
      {.name = "throughput",
          .about = "seconds a sample of ResNet50: one place, DataParallel, a larger batch, half "
                   "precision",
          .make = throughput::make_study,
          .quick_seconds = 20},
      {.name = "ddp-scaling",
          .about = "ten epochs of ResNet18 on CIFAR-100: 1, 2, 4 places, one node or two, lockstep "
                   "run or torchrun",
          .data = {"cifar100"},
          .make = ddp_scaling::make_study,
          .prepare = ddp_scaling::prepare,
          .quick_seconds = 35,
          .takes_nodes = true},
      {.name = "pipeline",
          .about = "ResNet50 cut over two places, pipelined by split size and schedule, against "
                   "one place",
          .make = pipeline::make_study,
          .quick_seconds = 40},
      {.name = "scale-out",
          .about = "a fixed time of training on 1, 2, 4, 8 nodes, with a worker killed in the "
                   "middle of one run",
          .data = {"images", "mnist"},
          .make = scale_out::make_study,
          .prepare = scale_out::prepare,
          .takes_pretrained = true,
          .pretrain = scale_out::pretrain,
          .quick_seconds = 50,
          .takes_nodes = true},
      {.name = "language-model",
          .about = "tokens a second and memory of a rank by sequence length: GPT-2 with ddp, fsdp, "
                   "pp, and on one place",
          .data = {"text", "tokens"},
          .make = language_model::make_study,
          .prepare = language_model::prepare,
          .quick_seconds = 45},
      {.name = "collectives",
          .about = "time and bandwidth of all_reduce and others over message sizes: shm and "
                   "threads against Gloo",
          .make = collectives::make_study,
          .trains = false},
      {.name = "ways",
          .about = "your own grid: which way of spreading is the fastest for a model and this "
                   "machine",
          .make = ways::make_study,
          .explore = ways::explore}};
  return kStudies;
}

const StudyEntry* find_study(const std::string& name) {
  return first_where(
      study_catalogue(), [&](const StudyEntry& entry) { return entry.name == name; });
}

std::vector<Study> BenchRequest::make() const {
  std::vector<Study> all;
  for (const std::string& name : studies) {
    const StudyEntry* entry = find_study(name);
    if (entry == nullptr)
      throw DataError(concat(kRequestFile, ": this program has no study ", name));
    for (Study& study : made_of(*entry, options)) all.push_back(std::move(study));
  }
  return all;
}

bool fit_to_budget(BenchRequest& request, double seconds) {
  if (request.options.full || request.options.rounds > 0) return false;
  double round = 0;
  for (const std::string& name : request.studies) {
    const StudyEntry* entry = find_study(name);
    if (entry != nullptr && !entry->is_of_user()) round += entry->quick_seconds;
  }
  if (round == 0) return false;
  const double work = seconds / (kRoundsInBudget * round);
  request.options.work = static_cast<int>(std::clamp(work, 1.0, kMostWork));
  request.options.rounds = 2 * kRoundsInBudget;  // what is faster than expected goes on
  return true;
}

// A sample also begins and ends: with so many times the work it takes fewer times as long. Where it
// has all the work that it can have, as a whole epoch, it would be the same again.
bool refit_to_budget(BenchRequest& request, double round_seconds, double seconds_left) {
  const double times = seconds_left / (kRoundsInBudget * round_seconds);
  if (!(times >= 2)) return false;
  BenchRequest more = request;
  more.options.work = static_cast<int>(std::min(times * request.options.work, kMostWork));
  if (more.options.work < 2 * request.options.work || commands_of(more) == commands_of(request))
    return false;
  request = std::move(more);
  return true;
}

void write_request(const std::filesystem::path& folder, const BenchRequest& request) {
  nlohmann::ordered_json object = {{"v", kVersion}, {"studies", request.studies},
      {"full", request.options.full}, {"data", request.options.data},
      {"nodes", request.options.nodes}, {"cores", request.options.cores},
      {"rounds", request.options.rounds}, {"work", request.options.work},
      {"device", request.options.device}, {"pretrained", request.options.pretrained},
      {"pretrains", request.options.pretrains}};
  if (request.options.gpus) object["gpus"] = *request.options.gpus;
  if (std::ranges::find(request.studies, "ways") != request.studies.end())
    object["ways"] = to_json(request.options.ways);
  replace_file(folder / kRequestFile,
      object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::optional<BenchRequest> read_request(const std::filesystem::path& folder) {
  std::ifstream file(folder / kRequestFile, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string name = (folder / kRequestFile).string();
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return request_of(parse_strict_json(text, name), name);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(concat(name, ": is not as a bench writes it: ", error.what()));
  }
}

void check_continues(const BenchRequest& before, const BenchRequest& now) {
  const auto grid = [](const BenchRequest& request) {
    return std::string(request.options.full ? "--full" : "--quick");
  };
  check_same("study", joined(before.studies, " "), joined(now.studies, " "));
  check_same("grid", grid(before), grid(now));
  check_same("--data", joined(before.options.data, " "), joined(now.options.data, " "));
  check_same("--device", before.options.device, now.options.device);
  check_same("--nodes", joined(before.options.nodes, " "), joined(now.options.nodes, " "));
  check_same("--pretrained", before.options.pretrained, now.options.pretrained);
  check_same("grid", before.options.ways.text(), now.options.ways.text());
  check_same("number of cores", before.options.cores, now.options.cores);
  if (before.options.gpus && now.options.gpus)
    check_same("number of GPUs", *before.options.gpus, *now.options.gpus);
}

}  // namespace lockstep::bench
