#include "bench/studies/ddp_scaling.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "bench/study/verdict.h"
#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/hosts/hosts.h"
#include "lockstep/launch/hosts/made_hosts.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::ddp_scaling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunSeconds = "run_seconds";    // of ten epochs
constexpr const char* kLaterEpoch = "epoch_seconds";  // one of all but the first
// Of ten epochs, each with an evaluation and a checkpoint after it.
constexpr const char* kWholeSeconds = "whole_seconds";

constexpr int kStudyEpochs = 10;
constexpr int kStudyPixels = 224;
constexpr int kStudyImages = 50000;  // CIFAR-100's training set
constexpr int kStudyTestImages = 10000;
constexpr int kQuickImages = 2048;      // enough for the quick grid's steps of four places
constexpr int kQuickTestImages = 1024;  // two batches on each of four places
constexpr int kQuickSteps = 3;          // of each of the two epochs
constexpr int kQuickPixels = 32;
constexpr const char* kLinkRate = "1gbit";     // of hosts that are made within this machine
constexpr double kQuickLimit = 300;            // seconds; a sample takes about eight
constexpr double kFullLimit = 48.0 * 60 * 60;  // ten epochs at 224 pixels on one slow core
constexpr std::int64_t kGradientBytes = 4 * std::int64_t{11'227'812};  // ResNet18, 100 classes

/// A point of the grid.
struct Point {
  int nodes = 1;
  int places = 1;                    ///< on all nodes, each a rank
  std::string started_by = "train";  ///< train: one place; run, torchrun; hosts: run on each of two
                                     ///< nodes; kHostsTorchrun
  std::string link = "none";         ///< between nodes: none, a rate, or real
  int pixels = 0;                    ///< height and width of the images

  /// Returns what it is: `2 places on 2 nodes`.
  std::string name() const {
    const std::string text = concat(places, places == 1 ? " place" : " places");
    return nodes == 1 ? text + " on one node" : concat(text, " on ", nodes, " nodes");
  }

  /// Returns what starts it: `lockstep run`.
  std::string launcher() const {
    if (started_by == kHostsTorchrun) return "torchrun on lockstep hosts";
    return started_by == "torchrun" ? started_by : "lockstep " + started_by;
  }

  bool is_spread() const { return places > 1; }
};

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

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

// As many as the set has for four places.
int quick_steps(const StudyOptions& options) {
  return std::min(options.work * kQuickSteps, kStudyImages / (4 * kStudyBatch));
}

std::string training_set(const StudyOptions& options) {
  return options.data_of({"cifar100"}, concat("cifar100:", kBenchFolder, "/data/cifar100"));
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
  return words_of("--names", options.first_nodes(point.nodes));
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

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const int cores = cores_a_place(options.cores);
  // Places on other machines take nothing of this one.
  const int here = point.link == "real" ? point.places / point.nodes : point.places;
  const bool once = !options.full && options.rounds == 0 && options.oversubscribed(here);
  return {.id = concat("n", point.nodes, "-p", point.places, "-", point.started_by,
              // An epoch that is cut is other work than a whole one.
              options.full ? "" : concat("-s", quick_steps(options))),
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

void draw_set(const fs::path& folder, const StudyOptions& study) {
  if (fs::exists(folder) && !fs::is_empty(folder)) return;
  data::SyntheticOptions options;
  if (!study.full) {
    options.train = std::max(kQuickImages, 4 * kStudyBatch * quick_steps(study));
    options.test = kQuickTestImages;
  }
  data::write_synthetic_set("cifar100", folder, options);
}

// What is read of a run.

/// The times of a run's epochs.
struct TrainedEpochs {
  double first = 0;   ///< seconds
  double later = 0;   ///< seconds of one of the others, their mean
  double all = 0;     ///< seconds
  double images = 0;  ///< of an epoch
};

TrainedEpochs epochs_of(const SummaryFacts& facts, const std::string& file) {
  TrainedEpochs trained;
  for (const auto& [number, epoch] : facts.epochs) {
    if (!epoch.train_seconds || !epoch.samples || *epoch.samples < 1) {
      throw DataError(concat(file, ": has no time of epoch ", number));
    }
    if (number == 1) trained.first = *epoch.train_seconds;
    trained.all += *epoch.train_seconds;
    trained.images = static_cast<double>(*epoch.samples);
  }
  const bool enough = facts.epochs.size() > 1 && facts.epochs.count(1) == 1;
  if (!enough) throw DataError(concat(file, ": has fewer than two epochs"));
  trained.later = (trained.all - trained.first) / static_cast<double>(facts.epochs.size() - 1);
  return trained;
}

/// The times of what came after them.
struct BetweenEpochs {
  double evaluation = 0;  ///< seconds of one
  double images = 0;      ///< of one
  double checkpoint = 0;  ///< seconds of one
  double all = 0;         ///< seconds
};

// Between the ends of two evaluations there are a checkpoint, an epoch and an evaluation.
double checkpoint_seconds(const SummaryFacts& facts, const std::map<std::int64_t, double>& ends) {
  double sum = 0;
  for (auto later = std::next(ends.begin()); later != ends.end(); ++later) {
    const EpochFacts& epoch = facts.epochs.at(later->first);
    const double between = later->second - std::prev(later)->second;
    sum += between - *epoch.train_seconds - *epoch.val_seconds;
  }
  return std::max(0.0, sum / static_cast<double>(ends.size() - 1));
}

BetweenEpochs between_epochs(const SummaryFacts& facts, const fs::path& run) {
  std::map<std::int64_t, double> ends;  // of evaluations
  for (const MetricLine& line : read_metrics(run / "metrics.jsonl").lines)
    if (line.record.split == "val") ends[line.record.epoch] = line.record.elapsed;
  BetweenEpochs between;
  for (const auto& [number, epoch] : facts.epochs) {
    const bool known = epoch.val_seconds && epoch.val_samples.value_or(0) > 0 && ends.count(number);
    if (!known) throw DataError(concat(run.string(), ": has no evaluation after epoch ", number));
    between.evaluation += *epoch.val_seconds;
    between.images = static_cast<double>(*epoch.val_samples);
  }
  const auto count = static_cast<double>(facts.epochs.size());
  between.checkpoint = checkpoint_seconds(facts, ends);
  between.all = between.evaluation + count * between.checkpoint;
  between.evaluation /= count;
  return between;
}

// How cells compare.

const Cell* find(const Cells& cells, int nodes, int places, const std::string& started_by) {
  return first_where(cells, [&](const Cell& each) {
    return each.nodes == nodes && each.places == places && each.started_by == started_by;
  });
}

const Cell* fair_cell(const Cells& cells, int nodes, int places, const std::string& started_by) {
  const Cell* cell = find(cells, nodes, places, started_by);
  return cell != nullptr && cell->is_fair() ? cell : nullptr;
}

const Cell* one_place(const Cell& cell) { return find(*cell.cells, 1, 1, "train"); }

std::optional<double> seconds_alone(const Cell& cell) {
  const Cell* one = one_place(cell);
  return one == nullptr ? std::nullopt : one->median(kRunSeconds);
}

std::optional<double> published(const Cell& cell) {
  return published_seconds(cell.nodes, cell.places, cell.started_by);
}

// How many times as fast as one place a cell is; nothing for one place.
std::optional<Estimate> speed_up(const Cell& cell) {
  return cell.is_spread() ? ratio_of(one_place(cell), &cell, kRunSeconds) : std::nullopt;
}

std::optional<double> published_speed_up(const Cell& cell) {
  const auto one = published_seconds(1, 1, "train"), these = published(cell);
  if (!one || !these || !cell.is_spread()) return std::nullopt;
  return *one / *these;
}

// From one place's time: an equal share of its work for each place, and the gradients over the link
// while backward goes on. Nothing for one place and for links of unknown rate.
std::optional<double> predicted_seconds(const Cell& cell) {
  const auto alone = seconds_alone(cell);
  if (!alone || !cell.is_spread() || cell.link == "real") return std::nullopt;
  if (cell.nodes == 1) return *alone / cell.places;
  // Each place makes steps as one alone does, only fewer.
  const plan::WholeStep step{.seconds = *alone / static_cast<double>(study_steps(1)),
      .parameter_bytes = static_cast<double>(kGradientBytes)};
  const plan::Machine machine{.nodes = cell.nodes,
      .places = cell.places / cell.nodes,
      .within = {.core_share = 1},
      .between = {.bytes_per_second = static_cast<double>(launch::parse_rate(cell.link)) / 8}};
  return static_cast<double>(study_steps(cell.places)) *
         predicted_step(step, machine, {.replicas = cell.places}, cell.places);
}

std::optional<double> predicted_speed_up(const Cell& cell) {
  const auto predicted = predicted_seconds(cell), alone = seconds_alone(cell);
  return predicted && alone ? std::optional(*alone / *predicted) : std::nullopt;
}

std::optional<double> efficiency(const Cell& cell) { return share_of(speed_up(cell), cell.places); }

// What is concluded: what a second place gave on one node and on two; remarks on another launcher
// and the network. Only of cells whose places had cores of their own.

std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times");
  return ratio.count < 2 ? times : concat(times, " (", interval_text(ratio), ")");
}

std::string paid(const Cell* cell) {
  const auto faster = cell == nullptr ? std::nullopt : speed_up(*cell);
  if (!faster) return "";
  return concat(cell->name(), ", started by ", cell->launcher(), ", were ", times_text(*faster),
      " as fast as one place: ", verdict_on(*faster, "faster", "slower"), ".");
}

// `The training took 1.01 times as long under torchrun: longer in every round.`
std::string took(const std::string& what, const Cell* cell, const Cell* base,
    const std::string& as_long, const std::string& end) {
  const auto ratio = ratio_of(cell, base, kRunSeconds);
  if (!ratio) return "";
  return concat(what, " took ", times_text(*ratio), " as long ", as_long,
      verdict_on(*ratio, "longer", "shorter"), end);
}

std::string about_four(const Cells& cells, const Cell* run) {
  const Cell* four = find(cells, 2, 4, "hosts");
  if (four == nullptr) return "";
  if (four->result.oversubscribed) return about_oversubscribed("Four places on two nodes");
  const Cell* fair = fair_cell(cells, 2, 4, "hosts");
  const auto ratio = ratio_of(fair, run, kRunSeconds);
  const char* advice = above_one(ratio)   ? ": stay on one node."
                       : below_one(ratio) ? ": the second node pays."
                                          : ".";
  return took("Four places on two nodes", fair, run, "as two on one, ", advice);
}

std::string about_evaluation(const Cell* one) {
  const auto whole = one == nullptr ? std::nullopt : one->median(kWholeSeconds);
  const auto training = one == nullptr ? std::nullopt : one->median(kRunSeconds);
  if (!whole || !training) return "";
  return concat(
      "With an evaluation and a checkpoint after each epoch, as the study timed it, ten "
      "epochs of one place took ",
      seconds_text(*whole), " s, of which training ", seconds_text(*training),
      " s; the comparisons here are of training alone.");
}

std::string about_share(const Cells& cells) {
  const double share = least_epoch_share(cells);
  if (share >= 1) return "";
  return concat("Times are extrapolated from ", percent_text(share), " of an epoch or more.");
}

// What explains that the study's four GPUs were no faster than one.
std::string about_the_study() {
  constexpr double kRate = 1e9;
  const double one = *published_seconds(1, 1, "train"), bytes = seconds_on_link(4, kRate);
  return concat("The study's four GPUs on two nodes took ",
      seconds_text(*published_seconds(2, 4, "hosts")), " s where one took ", seconds_text(one),
      " s. Gradients alone take ", seconds_text(bytes),
      " s at 1 Gbit/s, and a quarter of the computing ", seconds_text(one / 4),
      " s: a network of that rate would explain it. A larger set would change nothing: computing "
      "and bytes both grow with it.");
}

page::Conclusion conclusion(const Cells& cells) {
  const Cell* run = fair_cell(cells, 1, 2, "run");
  const Cell* two_nodes = fair_cell(cells, 2, 2, "hosts");
  const std::string answer = in_one({paid(run), paid(two_nodes)});
  return {.answer = answer.empty()
                        ? "No cell with several places has a number and cores of its own."
                        : answer,
      .remarks = {took("The training", fair_cell(cells, 1, 2, "torchrun"), run,
                      "under torchrun as under lockstep run: ",
                      "; the table of epochs has the overhead of starting."),
          took("On two nodes it", fair_cell(cells, 2, 4, kHostsTorchrun),
              fair_cell(cells, 2, 4, "hosts"), "by torchrun on each as by lockstep run: ", "."),
          took("The same two places", two_nodes, run, "on two nodes as on one: ", "."),
          about_four(cells, run), verdict_of_fair(cells, speed_up).explained(),
          about_evaluation(find(cells, 1, 1, "train")), about_share(cells),
          about_missing(results_of(cells)), about_the_study()}};
}

// Tables.

// The start and the end of the processes: all but the training and what comes after its epochs.
std::optional<double> overhead_seconds(const Cell& cell) {
  std::vector<double> seconds;
  for (const Sample& sample : cell.result.samples) {
    const auto trained = sample.values.find("trained_seconds");
    if (sample.worked() && trained != sample.values.end()) {
      const auto between = sample.values.find("between_seconds");
      const double apart = between == sample.values.end() ? 0 : between->second;
      seconds.push_back(sample.seconds - trained->second - apart);
    }
  }
  return seconds.empty() ? std::nullopt : std::optional(median(seconds));
}

// Why a column of this cell's row has no number.
std::string note_with_gaps(const Cell& cell) {
  const bool several = cell.is_spread(), real = cell.link == "real";
  const auto run = cell.estimate(kRunSeconds);
  return noted({cell_note(cell.result, kRunSeconds), published(cell) ? "" : "not in the study",
      several ? "" : "the baseline of the others",
      real ? "link's rate not known: no prediction" : "",
      several && !real && !predicted_seconds(cell) ? "one place has no number" : "",
      run && run->count < 2 ? "one round: no interval" : ""});
}

std::string link_note(const Cells& cells) {
  const Cell* made =
      first_where(cells, [](const Cell& each) { return each.nodes > 1 && each.link != "real"; });
  if (made == nullptr) return "nodes: the real hosts that were named";
  return concat("nodes: hosts made within this machine, each with a link of ", made->link,
      " each way; the study does not say what its network was");
}

// From how many images an evaluation's time follows, where those are not the study's.
std::string evaluation_note(const Cells& cells) {
  const Cell* few = first_where(cells, [](const Cell& cell) {
    return cell.median("evaluated_images").value_or(kStudyTestImages) < kStudyTestImages;
  });
  if (few == nullptr) return "";
  return concat("evaluation: extrapolated from ", *few->median("evaluated_images"), " images to ",
      kStudyTestImages, "; a checkpoint takes what it took");
}

std::vector<std::string> notes_of(const Cells& cells) {
  const int pixels = cells.front().pixels;
  return {
      "published: Python PyTorch's DDP on NVIDIA TITAN RTX GPUs, two on each node; an "
      "evaluation and a checkpoint after each epoch are in those times, so compare the column "
      "with both",
      "published beside lockstep run: PyTorch's older launcher, torch.distributed.launch; beside "
      "four places on two nodes: torchrun",
      "predicted: one place's time here / places; with several nodes by lockstep plan: "
      "44.9 MB of gradients a step pass each link once, while backward goes on",
      link_note(cells), oversubscribed_note(any_oversubscribed(cells)),
      any_oversubscribed(cells) ? "the prediction does not hold for oversubscribed cells" : "",
      least_epoch_share(cells) < 1
          ? "extrapolated: two epochs cut to that part; ten whole ones follow the second one's "
            "rate, and the first's longer start"
          : "",
      pixels < kStudyPixels
          ? concat("images of ", pixels, " x ", pixels, " pixels in place of the study's ",
                kStudyPixels, ": less computing for the same gradients, so a network weighs more")
          : "",
      evaluation_note(cells)};
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("ddp-scaling-") + what, title);
  return table.number("places", &Cell::places)
      .number("nodes", &Cell::nodes)
      .name("started by", &Cell::launcher);
}

std::vector<page::Table> tables(const Cells& cells) {
  return {table_of("run-times", "Seconds of ten epochs")
              .number("published [s]", published)
              .number("here, with evaluation and checkpoint [s]", kWholeSeconds)
              .estimate("here, training alone [s]", "interval [s]", kRunSeconds)
              .number("predicted [s]", predicted_seconds)
              .name("note", note_with_gaps)
              .notes(notes_of(cells))
              .notes(whole_reasons(results_of(cells)))
              .of(cells),
      table_of("speed-up", "How many times as fast as one place")
          .number("published", published_speed_up, ratio_text)
          .estimate("here", "interval", speed_up, ratio_text)
          .number("predicted", predicted_speed_up, ratio_text)
          .number("efficiency", efficiency, percent_text)
          .name("note", note_with_gaps)
          .notes({"of ten epochs; efficiency: speed-up here / places"})
          .of(select(cells, [](const Cell& cell) { return cell.is_spread(); })),
      table_of("epochs", "Epochs, and what they do not include")
          .number("first epoch [s]", "first_epoch_seconds")
          .number("later epoch [s]", kLaterEpoch)
          .number("images/s", "samples_per_s", decimals<0>)
          .number("train loss", "train_loss", decimals<3>)
          .number("evaluation [s]", "evaluation_seconds")
          .number("checkpoint [s]", "checkpoint_seconds")
          .number("overhead [s]", overhead_seconds)
          .note(kRunSeconds)
          .notes({"overhead: start and end of all processes, which the times of epochs do not "
                  "include; that of torchrun is mostly Python's and PyTorch's; train loss: of the "
                  "last epoch",
              "evaluation: of the test set after each epoch; checkpoint: for which training "
              "waits, its writing goes on beside the next epoch",
              evaluation_note(cells)})
          .of(cells)};
}

// Figures.

BarsOf<Cell> bars_of(const char* what, const char* title, const char* y) {
  return {std::string("ddp-scaling-") + what, title, "places, nodes, launcher", y,
      [](const Cell& cell) {
        return concat(cell.name(), ", ", cell.started_by, oversubscribed_mark(cell.result));
      }};
}

// What a reader must know who sees nothing but the picture.
std::string picture_note(const Cells& cells, const std::string& beginning) {
  return concat(beginning, medians_note(most_rounds(cells, kRunSeconds)),
      extrapolated_text(least_epoch_share(cells)));
}

std::vector<plot::Figure> figures(const Cells& cells) {
  return {bars_of("run-times", "Ten epochs of ResNet18 on CIFAR-100", "ten epochs [s]")
              .bars("here", kRunSeconds)
              .bars("predicted", predicted_seconds)
              .of(cells, picture_note(cells,
                             "Predicted: one place's time / places, and the gradients over the "
                             "link beside backward. ")),
      bars_of("speed-up", "How many times as fast as one place", "speed-up")
          .bars("here", speed_up)
          .bars("published", published_speed_up)
          .of(select(cells, [](const Cell& cell) { return cell.is_spread(); }),
              picture_note(cells, "Published: DDP on TITAN RTX GPUs. "))};
}

}  // namespace

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

SampleValues values_of(const fs::path& run) {
  const SummaryFacts facts = read_run_summary(run);
  const TrainedEpochs trained = epochs_of(facts, (run / "summary.json").string());
  // Ranks repeat some images to have equal shares, so a whole epoch may have a few more.
  const double share = std::min(1.0, trained.images / kStudyImages);
  const double later = trained.later / share;
  const double first = later + trained.first - trained.later;
  const double training = first + (kStudyEpochs - 1) * later;
  const BetweenEpochs between = between_epochs(facts, run);
  const double evaluation = between.evaluation * std::max(1.0, kStudyTestImages / between.images);
  return {{kRunSeconds, training}, {"first_epoch_seconds", first}, {kLaterEpoch, later},
      {"epoch_share", share}, {"trained_seconds", trained.all},
      {"samples_per_s", trained.images / trained.later}, {"evaluation_seconds", evaluation},
      {"evaluated_images", between.images}, {"checkpoint_seconds", between.checkpoint},
      {"between_seconds", between.all},
      {kWholeSeconds, training + kStudyEpochs * (evaluation + between.checkpoint)},
      {"train_loss", or_nan(facts.epochs.rbegin()->second.train_loss)}};
}

std::optional<double> published_seconds(int nodes, int places, const std::string& started_by) {
  struct Published {
    int nodes;
    int places;
    const char* started_by;
    double seconds;
  };
  // The study "Pytorch-DDP-Analysis" (Js2Hou), section Results. Its older launcher,
  // torch.distributed.launch, stands beside ours; its two nodes were started by torchrun.
  static constexpr Published kTimes[] = {{1, 1, "train", 555.0834}, {1, 2, "run", 301.9986},
      {1, 2, "torchrun", 324.2550}, {2, 4, "hosts", 549.2544}, {2, 4, kHostsTorchrun, 549.2544}};
  for (const Published& time : kTimes) {
    if (time.nodes == nodes && time.places == places && time.started_by == started_by)
      return time.seconds;
  }
  return std::nullopt;
}

std::int64_t study_steps(int places) {
  const std::int64_t a_step = std::int64_t{kStudyBatch} * places;
  return kStudyEpochs * ((kStudyImages + a_step - 1) / a_step);
}

double seconds_on_link(int places, double bits_per_second) {
  const double share = 2.0 * (places - 1) / places;
  const double bytes = share * static_cast<double>(kGradientBytes);
  return static_cast<double>(study_steps(places)) * bytes * 8 / bits_per_second;
}

}  // namespace lockstep::bench::ddp_scaling
