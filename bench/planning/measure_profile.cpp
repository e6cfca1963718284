#include "bench/planning/measure_profile.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "bench/experiment/sample_process.h"
#include "bench/statistics/median.h"
#include "bench/study/training_run.h"
#include "lockstep/core/enum_names.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

Words layout_flags(const plan::Way& way) {
  const std::string kind = kind_of(way);
  Words words = words_of("--parallel", kind);
  if (kind.starts_with("ddp") || kind == "fsdp") {
    add_words(words, words_of("--nproc-per-node", way.places()));
    if (way.stages > 1) add_words(words, words_of("--stages", way.stages));
  } else if (way.places() > 1) {
    add_words(words, words_of("--places", way.places()));
  }
  return words;
}

Words pipeline_flags(const plan::Way& way) {
  if (way.stages == 1) return {};
  Words words = words_of("--balance", "time");
  if (way.schedule == ScheduleKind::kSequential) return words;
  add_words(words, words_of("--schedule", name_of(way.schedule), "--chunks", way.micro_batches));
  return words;
}

Words gradient_flags(const plan::Way& way) {
  Words words;
  if (way.accumulated > 1) add_words(words, words_of("--grad-accum-steps", way.accumulated));
  if (way.is_sharded) add_words(words, words_of("--shard-optimizer"));
  if (way.reshard != Reshard::kAfterForward)
    add_words(words, words_of("--reshard", name_of(way.reshard)));
  if (way.copies > 1) add_words(words, words_of("--replicas", way.copies));
  if (way.checkpoint != Checkpoint::kNever)
    add_words(words, words_of("--checkpoint", name_of(way.checkpoint)));
  if (way.sent_as != plan::SentAs::kAsTheyAre)
    add_words(words, words_of("--comm-hook", name_of(way.sent_as)));
  const plan::Way usual;
  if (way.bucket_bytes != usual.bucket_bytes) {
    constexpr double kMebi = 1 << 20;
    add_words(words, words_of("--bucket-mb", static_cast<double>(way.bucket_bytes) / kMebi));
  }
  return words;
}

namespace fs = std::filesystem;

constexpr double kLimit = 60 * 60;  // seconds of a training
// The profile takes the first 13 steps, on accelerators 23; the layers are measured after them.
constexpr int kProfiledSteps = 25;
constexpr int kWarmUpSteps = 10;
constexpr int kTimedLines = 3;
// Half a second for a line, so that short steps are many, and long ones take no hour.
constexpr double kLineSeconds = 0.5;
constexpr int kFewestSteps = 5, kMostSteps = 50;

/// One way of spreading that is measured.
struct Measured {
  std::string in_words;
  Words spreading;
  std::vector<ProfiledRun> ProfiledRuns::*runs;
  // Peaks of memory tell what an exchange takes where both sides are profiled: a profile takes
  // some.
  bool is_profiled = false;
};

const Measured& measured(MeasuredAs as) {
  static const std::array kAll{
      Measured{"serial", words_of("--parallel", "serial"), &ProfiledRuns::alone, true},
      Measured{
          "ddp", words_of("--parallel", "ddp", "--nproc-per-node", 2), &ProfiledRuns::pairs, true},
      Measured{"dp", words_of("--parallel", "dp", "--places", 2), &ProfiledRuns::threads},
      Measured{"mp", words_of("--parallel", "mp", "--places", 2, "--balance", "time"),
          &ProfiledRuns::stages},
      Measured{"ddp through Gloo",
          words_of("--parallel", "ddp", "--nproc-per-node", 2, "--backend", "gloo"),
          &ProfiledRuns::sockets, true},
      Measured{concat("ddp of ", kCrowdedRanks, " ranks on two places"),
          words_of("--parallel", "ddp", "--nproc-per-node", kCrowdedRanks), &ProfiledRuns::crowds}};
  return kAll[static_cast<std::size_t>(as)];
}

// What measures comes last, since of two equal flags the last counts.
Words training(const MeasureRequest& request, int steps, const Words& spreading) {
  Words words = train_command(
      "--model", request.model, "--data", request.data, "--precision", request.precision);
  if (!request.plugin.empty()) add_words(words, words_of("--plugin", request.plugin));
  add_words(words, request.train_flags);
  add_words(words,
      words_of("--max-steps", steps, "--epochs", steps, "--log-interval", request.steps_a_line,
          "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"));
  add_words(words, spreading);
  return words;
}

StudyCell training_cell(
    const MeasureRequest& request, const std::string& name, int places, const Words& command) {
  return {.id = name,
      .settings = {{"training", name}},
      .command = command,
      .places = places,
      .cores = places * request.cores_a_place,
      .environment = threads(request.cores_a_place)};
}

// Lines of a run that are not timed.
int skipped_lines(const MeasureRequest& request, bool profiled) {
  const int steps = profiled ? kProfiledSteps : kWarmUpSteps;
  return (steps + request.steps_a_line - 1) / request.steps_a_line;
}

int steps_of_run(const MeasureRequest& request, bool profiled) {
  return request.steps_a_line * (skipped_lines(request, profiled) + kTimedLines);
}

MeasuredCell cell_of(const MeasureRequest& request, MeasuredAs as, int batch, bool has_profile) {
  const int steps = steps_of_run(request, has_profile);
  Words flags = words_of(measured(as).spreading, "--batch-size", batch);
  if (has_profile) add_words(flags, words_of("--profile"));
  MeasuredCell cell{.as = as,
      .batch = batch,
      .has_profile = has_profile,
      .cell = training_cell(request, concat("profile-", name_of(as), "-b", batch),
          as == MeasuredAs::kAlone ? 1 : 2, training(request, steps, flags))};
  // On the cores of two.
  if (as == MeasuredAs::kCrowd) cell.cell.places = kCrowdedRanks;
  return cell;
}

std::vector<double> steps_in(const fs::path& run, int skipped_lines) {
  std::vector<double> seconds;
  const auto lines = read_steps(run / "metrics.jsonl");
  for (std::size_t i = static_cast<std::size_t>(skipped_lines); i < lines.size(); ++i)
    seconds.push_back(lines[i].seconds / static_cast<double>(lines[i].count));
  return seconds;
}

// Its folder; the caller removes it.
fs::path run_cell(Trials& trials, const StudyCell& cell) {
  const fs::path run = trials.run_of(cell);
  const SampleEnd end = trials.run(cell, run, kLimit);
  check(end.status.succeeded(), "plan: ", cell.id,
      " cannot be trained: ", failure_reason(end, kLimit));
  return run;
}

// A layer's cost has to be known at many batches, the overheads' at a large, a middle and a small
// one.
std::vector<int> some_of(const std::vector<int>& batches) {
  if (batches.size() < 4) return batches;
  return {batches.front(), batches[batches.size() / 2], batches.back()};
}

ProfiledRun read_run(const MeasureRequest& request, const fs::path& run, const MeasuredCell& cell) {
  ProfiledRun read{.batch = static_cast<double>(cell.batch), .profile = {}, .step_seconds = {}};
  if (cell.has_profile) {
    const fs::path file = run / "profile" / "profile.json";
    std::ifstream stream(file, std::ios::binary);
    read.profile = read_profile({std::istreambuf_iterator<char>(stream), {}}, file.string());
  }
  if (measured(cell.as).is_profiled) {
    const auto of_all = read_run_summary(run).peak_memory_bytes.value_or(0);
    read.peak_bytes = static_cast<double>(of_all) / cell.cell.places;
  }
  read.step_seconds = steps_in(run, skipped_lines(request, cell.has_profile));
  return read;
}

// What is measured again adds steps to what is there.
void keep(ProfiledRun run, std::vector<ProfiledRun>& runs) {
  const auto same = std::ranges::find(runs, run.batch, &ProfiledRun::batch);
  if (same == runs.end())
    runs.push_back(std::move(run));
  else
    same->step_seconds.insert(
        same->step_seconds.end(), run.step_seconds.begin(), run.step_seconds.end());
}

int steps_a_line(double step_seconds) {
  const double steps = std::clamp<double>(kLineSeconds / step_seconds, kFewestSteps, kMostSteps);
  return static_cast<int>(steps);
}

bool can_be_cut(const ProfiledRuns& runs) {
  return runs.alone.front().profile.ranks.front().chain.size() > 1;
}

}  // namespace

Words train_flags_of(const plan::Way& way, double batch) {
  const auto own = std::lround(batch / way.replicas / way.accumulated);
  return words_of(layout_flags(way), "--batch-size", own, pipeline_flags(way), gradient_flags(way));
}

std::vector<MeasuredAs> not_asked_about(const std::vector<plan::Question>& questions, int places) {
  int nodes = 1, most = 1;  // places of a node
  for (const plan::Question& question : questions) {
    nodes = std::max(nodes, *std::ranges::max_element(question.nodes));
    most = std::max(most, *std::ranges::max_element(question.places));
  }
  const plan::Question& asked = questions.front();
  const auto& ways = asked.ways.kinds;
  const auto wants = [&](std::initializer_list<const char*> kinds) {
    return ways.empty() ||
           std::find_first_of(ways.begin(), ways.end(), kinds.begin(), kinds.end()) != ways.end();
  };
  const int near = asked.machine.is_one_machine ? nodes * most : most;
  std::vector<MeasuredAs> left_out;
  if (!wants({"dp"})) left_out.push_back(MeasuredAs::kThreads);
  if (!wants({"mp", "pp", "ddp+mp", "ddp+pp"})) left_out.push_back(MeasuredAs::kStages);
  if (nodes == 1) left_out.push_back(MeasuredAs::kSockets);
  if (near <= places) left_out.push_back(MeasuredAs::kCrowd);
  return left_out;
}

std::vector<MeasuredCell> profile_cells(const MeasureRequest& request, bool is_again) {
  std::vector<MeasuredCell> cells;
  const auto& left_out = request.left_out;
  const auto add = [&](MeasuredAs as, int batch) {
    if (std::ranges::find(left_out, as) != left_out.end()) return;
    cells.push_back(cell_of(request, as, batch, measured(as).is_profiled && !is_again));
  };
  const bool has_pairs = 2 * request.cores_a_place <= request.cores;
  const std::vector<int> some = some_of(request.batches);
  for (const int batch : request.batches) {
    if (std::ranges::find(request.refused, batch) != request.refused.end()) continue;
    add(MeasuredAs::kAlone, batch);
    if (has_pairs) add(MeasuredAs::kPair, batch);
    if (!has_pairs || std::ranges::find(some, batch) == some.end()) continue;
    add(MeasuredAs::kThreads, batch);
    add(MeasuredAs::kStages, batch);
    if (batch != some[some.size() / 2]) continue;
    add(MeasuredAs::kSockets, batch);
    add(MeasuredAs::kCrowd, batch);
  }
  return cells;
}

std::vector<double> plain_steps(
    const MeasureRequest& request, const PlainTraining& plain, const CellPaths& paths) {
  Trials trials(paths, "plan");
  const StudyCell cell = training_cell(request, plain.name, plain.places,
      training(request, steps_of_run(request, false), plain.spreading));
  const fs::path run = run_cell(trials, cell);
  std::vector<double> steps = steps_in(run, skipped_lines(request, false));
  fs::remove_all(run);
  return steps;
}

std::string count_text(std::size_t done, std::size_t all, double seconds) {
  std::string text = concat(done + 1, " of ", all);
  if (done == 0) return text;
  const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
  return concat(text, "; about ", format_duration(left), " left");
}

plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const std::function<void(const std::string&)>& say) {
  check(!request.batches.empty(), "plan: a profile is measured with at least one batch");
  Trials trials(paths, "plan");
  ProfiledRuns runs;
  MeasureRequest paced = request;
  std::size_t count = profile_cells(request).size();
  const Stopwatch watch;
  for (std::size_t i = 0; i < count * static_cast<std::size_t>(request.rounds);) {
    const MeasuredCell each = profile_cells(paced, i >= count)[i % count];
    say(concat("measuring ", request.model, " by ", measured(each.as).in_words, ", batches of ",
        each.batch, i < count ? "" : ", again", ": ",
        count_text(i, count * static_cast<std::size_t>(request.rounds), watch.seconds())));
    try {
      const fs::path run = run_cell(trials, each.cell);
      keep(read_run(paced, run, each), runs.*measured(each.as).runs);
      fs::remove_all(run);
    } catch (const InvalidArgument& error) {
      const bool is_uncut = each.as == MeasuredAs::kStages && runs.stages.empty();
      if (!is_uncut && (i == 0 || each.as != MeasuredAs::kAlone)) throw;
      say(concat(error.what(), "; going on without ",
          is_uncut ? std::string("stages") : concat("batches of ", each.batch)));
      // The cells that are left out would be this one and later ones.
      if (is_uncut)
        paced.left_out.push_back(MeasuredAs::kStages);
      else
        paced.refused.push_back(each.batch);
      count = profile_cells(paced).size();
      continue;
    }
    if (i++ > 0) continue;
    // The first is on one place; what it tells decides about the others.
    paced.steps_a_line = steps_a_line(median(runs.alone.front().step_seconds));
    if (!can_be_cut(runs)) paced.left_out.push_back(MeasuredAs::kStages);
    count = profile_cells(paced).size();
  }
  return profile_of_runs(runs, facts);
}

}  // namespace lockstep::bench
