#include <algorithm>

#include "bench/studies/ddp_scaling/study.h"
#include "bench/study/train_command.h"
#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::bench::ddp_scaling {
namespace {

namespace fs = std::filesystem;

constexpr int kQuickSteps = 3;  // of each of the two epochs
constexpr int kMostImages = 50000;
constexpr int kQuickPixels = 32;
constexpr const char* kLinkRate = "1gbit";     // of hosts that are made within this machine
constexpr double kQuickLimit = 300;            // seconds; a sample takes about eight
constexpr double kFullLimit = 48.0 * 60 * 60;  // ten epochs at 224 pixels on one slow core

// As many as the set has for four places.
int quick_steps(const StudyOptions& options) {
  return std::min(options.work * kQuickSteps, kMostImages / (4 * kStudyBatch));
}

// The study's own settings, with its evaluation and checkpoint after each epoch. It keeps one
// checkpoint; that of the best epoch stays here as well.
Words training(const Point& point, const StudyOptions& options) {
  Words words = train_command("--model", "resnet18", "--data", training_set(options), "--augment",
      "timm", "--image-size", point.pixels, "--batch-size", kStudyBatch, "--opt", "adam", "--lr",
      "0.001", "--sched", "cosine", "--epochs", options.full ? kStudyEpochs : 2, "--val-interval",
      1, "--snapshot-interval", "1epochs", "--keep", 1, "--progress", "none");
  if (!options.full) add_words(words, words_of("--limit-train-batches", quick_steps(options)));
  return words;
}

Words which_hosts(const Point& point, const StudyOptions& options) {
  if (options.nodes.empty()) return words_of("--count", point.nodes, "--rate", kLinkRate);
  const auto count = std::min(options.nodes.size(), static_cast<std::size_t>(point.nodes));
  const auto end = options.nodes.begin() + static_cast<std::ptrdiff_t>(count);
  return words_of("--names", joined({options.nodes.begin(), end}, ","));
}

Words starting(const Point& point, const StudyOptions& options) {
  const Words places = words_of("--nproc-per-node", point.places / point.nodes);
  const Words run = words_of("run", places, "--", kThisProgram);
  const Words torchrun = words_of("--no-python", places, kThisProgram);
  if (point.started_by == "torchrun") return words_of("--standalone", torchrun);
  if (point.started_by == "run") return run;
  if (point.started_by == "train") return {};
  const Words hosts = words_of("hosts", which_hosts(point, options), "--");
  // Both launchers take number and peers of their host from the environment.
  if (point.started_by == kHostsTorchrun) return words_of(hosts, "torchrun", torchrun);
  return words_of(hosts, kThisProgram, run);
}

std::string not_measurable(const Point& point, const StudyOptions& options) {
  const bool by_torchrun = point.started_by == "torchrun" || point.started_by == kHostsTorchrun;
  if (by_torchrun && launch::find_tool("torchrun").empty()) {
    return "there is no torchrun in PATH: pip install torch, and put its folder into PATH";
  }
  if (point.nodes == 1) return "";
  if (options.nodes.empty()) return options.on_cores() ? launch::hosts_missing() : kSharedDevices;
  if (std::ssize(options.nodes) >= point.nodes) return "";
  return concat("takes ", point.nodes, " hosts: name as many with --nodes");
}

std::string id_of(const Point& point, const StudyOptions& options) {
  const std::string id = concat("n", point.nodes, "-p", point.places, "-", point.started_by);
  // An epoch that is cut is other work than a whole one.
  return options.full ? id : concat(id, "-s", quick_steps(options));
}

void draw_set(const fs::path& folder, const StudyOptions& study) {
  if (fs::exists(folder) && !fs::is_empty(folder)) return;
  data::SyntheticOptions options;
  if (!study.full) {
    options.train = std::max(kQuickImages, 4 * kStudyBatch * quick_steps(study));
    options.test = kQuickTestImages;
  }
  data::write_synthetic_set("cifar100", folder, options);
}

}  // namespace

std::vector<Point> grid(const StudyOptions& options) {
  std::vector<Point> points{{}, {.places = 2, .started_by = "run"},
      {.places = 2, .started_by = "torchrun"}, {.nodes = 2, .places = 2, .started_by = "hosts"},
      {.nodes = 2, .places = 4, .started_by = "hosts"},
      {.nodes = 2, .places = 4, .started_by = kHostsTorchrun}};
  for (Point& point : points) {
    if (point.nodes > 1) point.link = options.nodes.empty() ? kLinkRate : "real";
    point.pixels = options.full ? kStudyPixels : kQuickPixels;
  }
  return points;
}

std::string training_set(const StudyOptions& options) {
  return options.data_of({"cifar100"}, concat("cifar100:", kBenchFolder, "/data/cifar100"));
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const int cores = cores_a_place(options.cores);
  // Places on other machines take nothing of this one.
  const int here = point.link == "real" ? point.places / point.nodes : point.places;
  const bool once = !options.full && options.rounds == 0 && options.oversubscribed(here);
  return {.id = id_of(point, options),
      .settings = {{"nodes", concat(point.nodes)}, {"places", concat(point.places)},
          {"started by", point.started_by}, {"link", point.link}, {"pixels", concat(point.pixels)}},
      .command = words_of(starting(point, options), training(point, options)),
      .program = point.started_by == "torchrun" ? "torchrun" : "",
      .places = here,
      .cores = std::min(options.cores, here * cores),
      .environment = threads(cores),
      .rounds = once ? 1 : 0,
      .not_measurable = not_measurable(point, options)};
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "ddp-scaling",
      .title = "DDP over places and nodes: ResNet18 on CIFAR-100",
      .question =
          "How much shorter does DistributedDataParallel make a training on two places of one "
          "node, does the launcher matter, and do two nodes pay?",
      .rounds = options.rounds_or(options.full ? 3 : 2),
      .limit_seconds = options.full ? kFullLimit : options.work * kQuickLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values = [](const Point&, const fs::path& run) { return values_of(run); },
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kRunSeconds, "ten epochs [s]"}, {kLaterEpoch, "later epoch [s]"},
          {kWholeSeconds, "with evaluation and checkpoint [s]"}},
      .device = options.device}
      .make();
}

void prepare(const StudyOptions& options, const fs::path& output) {
  const std::string data = training_set(options);
  const std::string folder = data.substr(std::min(data.find(':'), data.size() - 1) + 1);
  check(data.find(':') != std::string::npos && !folder.empty(),
      "bench: --data cifar100 needs the folder that holds the set, such as cifar100:DIR");
  if (options.data_of({"cifar100"}, "").empty()) {
    return draw_set(output / "data" / "cifar100", options);
  }
  if (!fs::is_directory(folder)) throw DataError(concat(folder, ": no such folder"));
}

}  // namespace lockstep::bench::ddp_scaling
