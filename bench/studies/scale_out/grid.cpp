#include <algorithm>
#include <cmath>

#include "bench/statistics/load_meter.h"
#include "bench/studies/scale_out/study.h"
#include "bench/study/run_files.h"
#include "bench/study/train_command.h"
#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::bench::scale_out {
namespace {

namespace fs = std::filesystem;

constexpr double kGigabyte = 1e9;
constexpr double kGigabit = 1e9;

// 1,040 of the 1,156 images of a class are trained on: 650 batches of 32, as the study has them.
TrainerPlan full_plan() {
  return {.model = "vgg19",
      .set = "images",
      .image_size = 224,
      .batch = 32,
      .budget_seconds = 2 * 60 * 60,
      .budget = "2h",
      .gigabits = 25,
      .train_images = 1156 * kDrawnClasses,
      .test_images = 130 * kDrawnClasses,
      .val_split = "0.1",
      .snapshot_interval = "10m",
      .kill_seconds = 60 * 60,
      .gigabytes_a_host = 6,  // one rank was seen to need 5.1; DDP also has its buckets
      .log_interval = 10,
      .most_nodes = 8,
      .rounds = 1,  // as the study: with five cells of two hours it is a night
      .limit_seconds = 6.0 * 60 * 60,
      // With Adam at the study's rate a fresh VGG19 stays at the loss of guessing. Small images
      // make enough steps in the time; the net takes them of any size.
      .pretraining = {.image_size = 64,
          .optimizer = "sgd",
          .rate = "0.01",
          .steps = "2000",
          .time = "30m",
          .limit_seconds = 2.0 * 60 * 60}};
}

// VGG19's classifier alone is half a gigabyte on each host and takes minutes to learn anything.
// This net learns in seconds, and at this rate a batch takes about twice as long to compute as its
// gradients to send, as with the study's nodes.
TrainerPlan quick_plan() {
  return {.model = "mnist-small",
      .set = "mnist",
      .image_size = 28,
      .batch = 32,
      .budget_seconds = 10,
      .budget = "10s",
      .gigabits = 4,
      .train_images = 6000,
      .test_images = 1000,
      .val_split = "0.2",
      .snapshot_interval = "1s",
      .kill_seconds = 7,
      .gigabytes_a_host = 0.5,
      .log_interval = 10,
      .most_nodes = 4,
      .rounds = 2,
      .limit_seconds = 120,
      .pretraining = {.image_size = 28,
          .optimizer = "adam",
          .rate = "1e-3",
          .steps = "20",
          .time = "20s",
          .limit_seconds = 120}};
}

bool has_real_hosts(const StudyOptions& options) { return !options.nodes.empty(); }

std::string rate_of(const TrainerPlan& plan) { return concat(plan.gigabits, "gbit"); }

std::string first_names(const StudyOptions& options, int count) {
  const auto most = std::min(std::ssize(options.nodes), std::ptrdiff_t{count});
  return joined({options.nodes.begin(), options.nodes.begin() + most}, ",");
}

// One host of this machine needs no network, and no right to make one.
Words hosts_command(const Point& point, const StudyOptions& options, const TrainerPlan& plan) {
  if (!has_real_hosts(options) && point.nodes == 1) return {};
  const Words which = has_real_hosts(options)
                          ? words_of("--names", first_names(options, point.nodes))
                          : words_of("--count", point.nodes, "--rate", rate_of(plan),
                                "--cores-a-host", cores_a_host(options));
  const Words kill = words_of("--max-restarts", 3, "--kill", concat("1@", plan.kill_seconds));
  // One rank on each, which goes on counting its attempts when all are started again.
  return words_of("hosts", which, point.killed ? kill : Words(), "--", "lockstep", "run",
      "--nproc-per-node", 1, "--", kThisProgram);
}

Words training(const Point& point, const StudyOptions& options, const TrainerPlan& plan) {
  const auto unless = [](bool without, const Words& words) { return without ? Words() : words; };
  return train_command("--model", plan.model, data_words(options),
      unless(first_weights(options).empty(), {"--pretrained", first_weights(options)}),
      "--image-size", plan.image_size, "--parallel", point.nodes > 1 ? "ddp" : "serial",
      "--batch-size", plan.batch, "--opt", "adam", "--lr", "1e-4", "--lr-scale", "sqrt",
      "--max-time", plan.budget, "--log-interval", plan.log_interval, "--progress", "none",
      // Without a death, the snapshot of each epoch that is the best so far is all that is saved.
      "--snapshot-interval", point.killed ? plan.snapshot_interval : "never",
      unless(!point.killed, {"--resume", "auto"}));
}

std::string weights_of(const StudyOptions& options) {
  if (!options.pretrained.empty()) return "pretrained";
  return options.pretrains ? "short" : "fresh";
}

std::string missing_real_hosts(const Point& point, const StudyOptions& options) {
  if (std::ssize(options.nodes) < point.nodes) {
    return concat("needs ", point.nodes, " hosts, and --nodes names ", options.nodes.size());
  }
  return point.killed
             ? "only a worker on hosts within this machine can be killed: leave out --nodes"
             : "";
}

std::string missing_made_hosts(
    const Point& point, const StudyOptions& options, const TrainerPlan& plan) {
  if (!options.on_cores()) return point.nodes == 1 ? "" : kSharedDevices;
  const double have = static_cast<double>(machine_memory()) / kGigabyte;
  const double need = point.nodes * plan.gigabytes_a_host;
  if (have > 0 && need > have) {
    return concat("needs about ", std::llround(need), " GB of memory for ", point.nodes,
        point.nodes == 1 ? " host" : " hosts", ", and there are ", std::llround(have),
        "; name others by --nodes");
  }
  return point.nodes == 1 ? "" : launch::hosts_missing();
}

std::string not_measurable(
    const Point& point, const StudyOptions& options, const TrainerPlan& plan) {
  if (point.nodes > plan.most_nodes) return "not in --quick; --full measures it";
  return has_real_hosts(options) ? missing_real_hosts(point, options)
                                 : missing_made_hosts(point, options, plan);
}

// What is not a fair test, or only to be shown, is measured once in the quick grid.
int rounds_of(const Point& point, const StudyOptions& options) {
  if (options.full || options.rounds > 0) return 0;
  const bool over = !has_real_hosts(options) && options.oversubscribed(point.nodes);
  return over || point.killed ? 1 : 0;
}

// `images` have a part to test on, but are to have none to validate on: that is held out.
void draw(const fs::path& folder, const TrainerPlan& plan) {
  const bool has_classes = plan.set == "images";
  if (!fs::exists(folder)) {
    data::SyntheticOptions drawn{.train = plan.train_images, .test = plan.test_images};
    if (has_classes) drawn.classes = kDrawnClasses;
    fs::create_directories(folder.parent_path());
    data::write_synthetic_set(plan.set, folder, drawn);
  }
  if (has_classes && !fs::exists(folder / "test")) fs::rename(folder / "val", folder / "test");
}

void check_named(const std::string& data) {
  const auto colon = data.find(':');
  check(colon != std::string::npos,
      "bench: --data: name the folder that holds the set, as images:DIR, and not only ", data);
  const std::string folder = data.substr(colon + 1);
  if (!fs::is_directory(folder)) throw DataError(concat("bench: --data: no such folder: ", folder));
}

}  // namespace

TrainerPlan trainer_plan(const StudyOptions& options) {
  if (options.full) return full_plan();
  TrainerPlan plan = quick_plan();
  plan.budget_seconds *= options.work;
  plan.budget = concat(plan.budget_seconds, "s");
  plan.kill_seconds *= options.work;
  plan.snapshot_interval = concat(options.work, "s");
  plan.limit_seconds *= options.work;
  return plan;
}

std::vector<Point> grid(const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  Point point{.budget_seconds = static_cast<double>(plan.budget_seconds)};
  if (!has_real_hosts(options)) point.bits_per_second = plan.gigabits * kGigabit;
  std::vector<Point> points;
  for (const int nodes : kNumbersOfNodes) {
    point.nodes = nodes;
    points.push_back(point);
  }
  point.nodes = kKilledNodes;
  point.killed = true;
  points.push_back(point);
  return points;
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  const int cores = cores_a_host(options);
  StudyCell cell{
      .id = concat(plan.model, "-", plan.budget, "-n", point.nodes, point.killed ? "-killed" : ""),
      .settings = {{"nodes", concat(point.nodes)}, {"killed", point.killed ? "yes" : "no"},
          {"model", plan.model}, {"weights", weights_of(options)},
          {"image_size", concat(plan.image_size)}, {"batch", concat(plan.batch)},
          {"budget_seconds", concat(plan.budget_seconds)},
          {"network", has_real_hosts(options) ? "real" : rate_of(plan)}},
      .command = words_of(hosts_command(point, options, plan), training(point, options, plan)),
      .places = point.nodes,
      .cores = std::min(options.cores, point.nodes * cores),
      .environment = threads(cores),
      .rounds = rounds_of(point, options),
      .not_measurable = not_measurable(point, options, plan)};
  if (!has_real_hosts(options)) return cell;
  // Real hosts have cores of their own, all of them, and are never too many for this machine's.
  cell.places = 1;
  cell.cores = 0;
  cell.environment.clear();
  return cell;
}

std::string training_set(const StudyOptions& options) {
  const std::string set = trainer_plan(options).set;
  return options.data_of({set}, concat(set, ":", kBenchFolder, "/data/", set));
}

std::vector<std::string> data_words(const StudyOptions& options) {
  const std::string data = training_set(options);
  Words words{"--data", data};
  if (!has_validation(data))
    add_words(words, Words{"--val-split", trainer_plan(options).val_split});
  return words;
}

bool has_validation(const std::string& data) {
  const auto colon = data.find(':');
  if (colon == std::string::npos) return false;
  const fs::path folder = data.substr(colon + 1);
  std::error_code none;
  for (const char* name : {"val", "valid", "validation"}) {
    if (fs::is_directory(folder / name, none)) return true;
  }
  return false;
}

int cores_a_host(const StudyOptions& options) {
  return std::max(1, options.cores / trainer_plan(options).most_nodes);
}

Study make_study(const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  return StudyOf<Point>{.name = "scale-out",
      .title = "Scale out: the same time of training on more nodes",
      .question =
          "With a fixed time to train, how much further do 2, 4, 8 nodes come than one, and does a "
          "run survive the death of a worker?",
      .rounds = options.rounds_or(plan.rounds),
      .limit_seconds = plan.limit_seconds,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values = values_of,
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{"steps", "steps"}, {"step_seconds", "step [s]"},
          {kBestValLoss, "best val loss"}, {"test_accuracy", "top-1"}},
      .device = options.device}
      .make();
}

void prepare(const StudyOptions& options, const fs::path& output) {
  if (!options.pretrained.empty() && !fs::is_regular_file(options.pretrained)) {
    throw DataError(concat("bench: --pretrained: no such file: ", options.pretrained));
  }
  const std::string images = options.data_of({"images"}, "");
  check(options.full || images.empty(),
      "bench: --data: the quick grid of scale-out takes mnist; add --full for ", images);
  const std::string data = training_set(options);
  if (data.find(kBenchFolder) == std::string::npos) return check_named(data);
  const TrainerPlan plan = trainer_plan(options);
  draw(output / "data" / plan.set, plan);
}

}  // namespace lockstep::bench::scale_out
