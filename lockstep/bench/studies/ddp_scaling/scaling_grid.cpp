#include "lockstep/bench/studies/ddp_scaling/scaling_grid.h"

#include <algorithm>

#include "lockstep/bench/statistics/oversubscription.h"
#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/available.h"
#include "lockstep/launch/hosts/tool.h"

namespace lockstep::bench {
namespace {

constexpr int kMostPlaces = 4;
constexpr int kQuickSteps = 3;  // of each of the two epochs
constexpr int kQuickPixels = 32;

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// The study's own settings. One evaluation, at the end: it is no part of the times.
Words training(const StudyOptions& options) {
  Words words{
      "train",
      "--model",
      "resnet18",
      "--data",
      scaling_set(options),
      "--augment",
      "timm",
      "--image-size",
      std::to_string(options.full ? kStudyPixels : kQuickPixels),
      "--batch-size",
      std::to_string(kStudyBatch),
      "--opt",
      "adam",
      "--lr",
      "0.001",
      "--sched",
      "cosine",
      "--epochs",
      std::to_string(options.full ? kStudyEpochs : 2),
      "--val-interval",
      "0",
      "--snapshot-interval",
      "never",
      "--progress",
      "none"};
  if (!options.full) append(words, {"--limit-train-batches", std::to_string(kQuickSteps)});
  return words;
}

Words which_hosts(const ScalingPoint& point, const StudyOptions& options) {
  if (options.nodes.empty()) {
    return {"--count", std::to_string(point.nodes), "--rate", kLinkRate};
  }
  std::string names;
  for (int node = 0; node < std::min(point.nodes, static_cast<int>(options.nodes.size())); ++node) {
    names += (names.empty() ? "" : ",") + options.nodes[static_cast<std::size_t>(node)];
  }
  return {"--names", names};
}

Words command_of(const ScalingPoint& point, const StudyOptions& options) {
  const std::string places = std::to_string(point.places / point.nodes);
  Words words;
  if (point.started_by == "torchrun") {
    words = {"--standalone", "--no-python", "--nproc-per-node", places, kThisProgram};
  } else if (point.started_by == "run") {
    words = {"run", "--nproc-per-node", places, "--", kThisProgram};
  } else if (point.started_by == "hosts") {
    words = {"hosts"};
    append(words, which_hosts(point, options));
    append(words, {"--", kThisProgram, "run", "--nproc-per-node", places, "--", kThisProgram});
  }
  append(words, training(options));
  return words;
}

std::string not_measurable(const ScalingPoint& point, const StudyOptions& options) {
  if (point.started_by == "torchrun" && launch::find_tool("torchrun").empty()) {
    return "there is no torchrun in PATH: pip install torch, and put its folder into PATH";
  }
  if (point.nodes == 1) return "";
  if (options.nodes.empty()) return launch::hosts_missing();
  if (static_cast<int>(options.nodes.size()) >= point.nodes) return "";
  return concat("takes ", point.nodes, " hosts: name so many with --nodes");
}

int cores_a_scaling_place(int cores) { return std::max(1, cores / kMostPlaces); }

std::string id_of(const ScalingPoint& point, bool full) {
  const std::string id = concat("n", point.nodes, "-p", point.places, "-", point.started_by);
  // An epoch that is cut is other work than a whole one.
  return full ? id : concat(id, "-s", kQuickSteps);
}

std::string link_of(const ScalingPoint& point, const StudyOptions& options) {
  if (point.nodes == 1) return "none";
  return options.nodes.empty() ? kLinkRate : "real";
}

}  // namespace

std::vector<ScalingPoint> scaling_grid() {
  return {
      {},
      {.places = 2, .started_by = "run"},
      {.places = 2, .started_by = "torchrun"},
      {.nodes = 2, .places = 2, .started_by = "hosts"},
      {.nodes = 2, .places = 4, .started_by = "hosts"}};
}

std::string scaling_set(const StudyOptions& options) {
  return options.data_of({"cifar100"}, concat("cifar100:", kBenchFolder, "/data/cifar100"));
}

StudyCell scaling_cell(const ScalingPoint& point, const StudyOptions& options) {
  const int threads = cores_a_scaling_place(options.cores);
  const bool real = point.nodes > 1 && !options.nodes.empty();
  // Places on other machines take nothing of this one.
  const int here = real ? point.places / point.nodes : point.places;
  const bool once = !options.full && options.rounds == 0 && oversubscribed(here, options.cores);
  return {
      .id = id_of(point, options.full),
      .settings =
          {{"nodes", std::to_string(point.nodes)},
           {"places", std::to_string(point.places)},
           {"started by", point.started_by},
           {"link", link_of(point, options)},
           {"pixels", std::to_string(options.full ? kStudyPixels : kQuickPixels)}},
      .command = command_of(point, options),
      .program = point.started_by == "torchrun" ? "torchrun" : "",
      .places = here,
      .cores = std::min(options.cores, here * threads),
      .environment = {concat("OMP_NUM_THREADS=", threads)},
      .rounds = once ? 1 : 0,
      .not_measurable = not_measurable(point, options)};
}

}  // namespace lockstep::bench
