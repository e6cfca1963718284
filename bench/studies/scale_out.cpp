#include "bench/studies/scale_out.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <utility>

#include "bench/experiment/sample_process.h"
#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/made_hosts.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::scale_out {
namespace {

namespace fs = std::filesystem;

constexpr int kLogInterval = 10;  // steps between points of the training loss
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
      .gigabits = 4,
      .train_images = 6000,
      .test_images = 1000,
      .val_split = "0.2",
      .kill_seconds = 7,
      .gigabytes_a_host = 0.5,
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

// The set to train on, as `lockstep train --data` takes it.
std::string training_set(const StudyOptions& options) {
  const std::string set = trainer_plan(options).set;
  return options.data_of({set}, concat(set, ":", kBenchFolder, "/data/", set));
}

// True if a set has images to validate on, so that none are to be held out.
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

// The words of the training set and of the images that are held out of it.
Words data_words(const StudyOptions& options) {
  const std::string data = training_set(options);
  Words words{"--data", data};
  if (!has_validation(data))
    add_words(words, Words{"--val-split", trainer_plan(options).val_split});
  return words;
}

fs::path pretrained_file(const fs::path& bench, const StudyOptions& options) {
  return bench / "pretrained" / (trainer_plan(options).model + ".safetensors");
}

// The file of weights that cells begin with, as their commands name it; empty: fresh ones.
std::string first_weights(const StudyOptions& options) {
  if (!options.pretrained.empty() || !options.pretrains) return options.pretrained;
  return pretrained_file(kBenchFolder, options).string();
}

std::string rate_of(const TrainerPlan& plan) { return concat(plan.gigabits, "gbit"); }

// One host of this machine needs no network, and no right to make one.
Words hosts_command(const Point& point, const StudyOptions& options, const TrainerPlan& plan) {
  if (!has_real_hosts(options) && point.nodes == 1) return {};
  const Words which = has_real_hosts(options)
                          ? words_of("--names", options.first_nodes(point.nodes))
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
      "--max-time", plan.budget, "--log-interval", kLogInterval, "--progress", "none",
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

std::vector<Point> grid(const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  Point point{.budget_seconds = static_cast<double>(plan.budget_seconds)};
  if (!has_real_hosts(options)) point.bits_per_second = plan.gigabits * kGigabit;
  std::vector<Point> points;
  for (const int nodes : {1, 2, 4, 8}) {
    point.nodes = nodes;
    points.push_back(point);
  }
  point.nodes = 2;
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

// What is read of a run.

using Lines = std::vector<MetricLine>;

std::string curve_name(const char* what, int percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%s_at_%03d", what, percent);
  return text;
}

Lines of_split(const Lines& lines, const std::string& split) {
  Lines found;
  for (const MetricLine& line : lines) {
    if (line.record.split == split && line.record.rank == 0) found.push_back(line);
  }
  return found;
}

// What comes after the clock's end, as the last validation does, belongs to its last share.
int share_of(const MetricLine& line, double budget) {
  const double percent = 100 * line.record.elapsed / budget;
  for (const int end : curve_percents()) {
    if (percent <= end) return end;
  }
  return 100;
}

// The mean over the steps of a share; a share in which no line was written has none.
void add_train_curve(const Lines& train, double budget, SampleValues& values) {
  std::map<int, std::pair<double, double>> sums;  // of losses and of steps
  std::int64_t before = 0;
  for (const MetricLine& line : train) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, line.record.step - before));
    before = line.record.step;
    if (!line.record.scores.loss) continue;
    auto& [loss, weight] = sums[share_of(line, budget)];
    loss += *line.record.scores.loss * steps;
    weight += steps;
  }
  for (const auto& [percent, sum] : sums) {
    values[train_loss_name(percent)] = sum.first / sum.second;
  }
}

void add_val_curve(const Lines& val, double budget, SampleValues& values) {
  for (const int percent : curve_percents()) {
    std::optional<double> newest;
    for (const MetricLine& line : val) {
      if (share_of(line, budget) <= percent) newest = line.record.scores.loss;
    }
    if (newest) values[val_loss_name(percent)] = *newest;
  }
}

// The start of the run is no part of its epochs: it takes as long on any number of nodes.
double seconds_before_training(const MetricRecord& first) {
  return first.elapsed - first.step_ms.value_or(0) * static_cast<double>(first.step) / 1000;
}

// The clock cuts the last epoch; all before it are whole, and each ends with a validation.
void add_epochs(const Lines& train, const Lines& val, SampleValues& values) {
  if (val.size() < 2) return;
  const MetricRecord& last = val[val.size() - 2].record;
  const auto whole = static_cast<double>(val.size() - 1);
  const double steps = static_cast<double>(last.step) / whole;
  values["steps_an_epoch"] = steps;
  values[kEpochSeconds] = (last.elapsed - seconds_before_training(train.front().record)) / whole;
  values[kEpochs] = values.at("steps") / steps;
}

SampleValues summary_values(const SummaryFacts& facts) {
  const auto steps = static_cast<double>(facts.steps.value_or(0));
  const auto ranks = static_cast<double>(facts.world_size.value_or(1));
  double seconds = 0;
  for (const auto& [number, epoch] : facts.epochs) seconds += epoch.train_seconds.value_or(0);
  return {{"steps", steps}, {"step_seconds", seconds / steps},
      {"global_batch", ranks * static_cast<double>(facts.batch_size.value_or(0))},
      {kBestValLoss, or_nan(facts.best_value)}, {"test_loss", or_nan(facts.best_test.loss)},
      {"test_accuracy", or_nan(facts.best_test.top1)}};
}

// Each attempt keeps the run's own time from its snapshot on, so what the clock on the wall has
// gone further from one attempt to the next was lost: death, start, and the work that was made
// again.
void add_losses(const Lines& lines, SampleValues& values) {
  const MetricLine& first = lines.front();
  const MetricLine& last = lines.back();
  const auto next = std::ranges::find_if(
      lines, [&](const MetricLine& line) { return line.record.restart > first.record.restart; });
  if (next == lines.end() || !first.unix_seconds || !last.unix_seconds) return;
  const double killed = std::prev(next)->record.elapsed;
  const double wall = *last.unix_seconds - *first.unix_seconds;
  values["killed_after_seconds"] = killed;
  values["made_again_seconds"] = std::max(0.0, killed - next->record.elapsed);
  values["lost_seconds"] = wall - (last.record.elapsed - first.record.elapsed);
}

void check_ending(const SummaryFacts& facts, bool killed, const std::string& file) {
  if (facts.stopped_by != "time") {
    throw DataError(
        concat(file, ": the run was ended by '", facts.stopped_by, "', not by its time"));
  }
  if (facts.steps.value_or(0) < 1) throw DataError(concat(file, ": not one step was made"));
  if (killed && facts.restarts.value_or(0) < 1) {
    throw DataError(concat(
        file, ": a worker was to be killed, but the run was never started again; was it over?"));
  }
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

int cores_a_host(const StudyOptions& options) {
  return std::max(1, options.cores / trainer_plan(options).most_nodes);
}

std::string Point::name() const {
  return concat(nodes, nodes == 1 ? " node" : " nodes", killed ? ", a worker killed" : "");
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

StudyCell pretraining_cell(const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  const TrainerPlan::Pretraining& how = plan.pretraining;
  const StudyCell cell{.id = concat("pretraining-", plan.model),
      .command = train_command("--model", plan.model, data_words(options), "--image-size",
          how.image_size, "--parallel", "serial", "--batch-size", plan.batch, "--opt",
          how.optimizer, "--lr", how.rate, "--clip-grad", 1, "--max-steps", how.steps, "--max-time",
          how.time, "--val-interval", 0, "--snapshot-interval", "never", "--progress", "none")};
  return on_device(cell, options.device.substr(0, options.device.find(',')));
}

void pretrain(const StudyOptions& options, const CellPaths& paths) {
  const fs::path file = pretrained_file(paths.bench, options);
  const bool is_ours = options.pretrained.empty() && options.pretrains;
  const auto is_measured = [&](const Point& point) {
    return cell_of(point, options).not_measurable.empty();
  };
  if (!is_ours || fs::exists(file) || std::ranges::none_of(grid(options), is_measured)) return;
  const TrainerPlan::Pretraining how = trainer_plan(options).pretraining;
  std::cerr << "lockstep bench: scale-out: training the weights that all cells begin with, at most "
            << how.time << std::endl;
  Trials trials(paths, "scale-out");
  const StudyCell cell = pretraining_cell(options);
  const fs::path run = trials.run_of(cell);
  const std::string reason =
      failure_reason(trials.run(cell, run, how.limit_seconds), how.limit_seconds);
  if (!reason.empty())
    throw Error(concat("bench: the weights to begin with could not be trained: ", reason, "; see ",
        trials.log_of(cell).string()));
  // Whole or not there: another start finds it by its name.
  fs::create_directories(file.parent_path());
  fs::rename(run / "model.safetensors", file);
  fs::remove_all(run);
}

std::vector<int> curve_percents() {
  std::vector<int> percents;
  for (int percent = 5; percent <= 100; percent += 5) percents.push_back(percent);
  return percents;
}

std::string train_loss_name(int percent) { return curve_name("train_loss", percent); }

std::string val_loss_name(int percent) { return curve_name("val_loss", percent); }

SampleValues values_of(const Point& point, const fs::path& run) {
  const SummaryFacts facts = read_run_summary(run);
  check_ending(facts, point.killed, (run / "summary.json").string());
  const MetricsFile metrics = read_metrics(run / "metrics.jsonl");
  const Lines lines = merged(metrics.lines);
  const Lines train = of_split(lines, "train"), val = of_split(lines, "val");
  if (train.empty()) throw DataError(concat((run / "metrics.jsonl").string(), ": has no training"));
  SampleValues values = summary_values(facts);
  values["learning_rate"] = or_nan(train.back().record.lr);
  values["model_bytes"] = static_cast<double>(fs::file_size(run / "model.safetensors"));
  add_epochs(train, val, values);
  add_train_curve(train, point.budget_seconds, values);
  add_val_curve(val, point.budget_seconds, values);
  if (point.killed) {
    values["restarts"] = static_cast<double>(*facts.restarts);
    add_losses(metrics.lines, values);
  }
  return values;
}

}  // namespace lockstep::bench::scale_out
