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
constexpr int kProfiledSteps = 15, kProfiledOnAccelerators = 25;
constexpr int kLayerSteps = 6;  // about as long as measuring the layers takes
constexpr int kWarmUpSteps = 10, kLongWarmUpSteps = 3;
constexpr int kTimedLines = 3;
// Half a second for a line, so that short steps are many, and long ones take no hour.
constexpr double kLineSeconds = 0.5;
constexpr int kMostSteps = 50;

/// One way of spreading that is measured.
struct Measured {
  std::string in_words;
  Words spreading;
  std::vector<ProfiledRun> ProfiledRuns::*runs;
  double slowness;  // about how many times as long its step takes as one place's
  // Peaks of memory tell what an exchange takes where both sides are profiled: a profile takes
  // some.
  bool is_profiled = false;
};

const Measured& measured(MeasuredAs as) {
  static const std::array kAll{
      Measured{"serial", words_of("--parallel", "serial"), &ProfiledRuns::alone, 1, true},
      Measured{"ddp", words_of("--parallel", "ddp", "--nproc-per-node", 2), &ProfiledRuns::pairs,
          1.3, true},
      Measured{"dp", words_of("--parallel", "dp", "--places", 2), &ProfiledRuns::threads, 1.3},
      Measured{"mp", words_of("--parallel", "mp", "--places", 2, "--balance", "time"),
          &ProfiledRuns::stages, 1},
      Measured{"ddp through Gloo",
          words_of("--parallel", "ddp", "--nproc-per-node", 2, "--backend", "gloo"),
          &ProfiledRuns::sockets, 1.3, true},
      Measured{concat("ddp of ", kCrowdedRanks, " ranks on two places"),
          words_of("--parallel", "ddp", "--nproc-per-node", kCrowdedRanks), &ProfiledRuns::crowds,
          2.6}};
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
  const int warm_up = request.steps_a_line > 1 ? kWarmUpSteps : kLongWarmUpSteps;
  const int of_profile = request.has_accelerator ? kProfiledOnAccelerators : kProfiledSteps;
  const int steps = profiled ? of_profile : warm_up;
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

// Why it cannot be trained; empty: its run is in its folder, which the caller removes.
std::string failure_of(Trials& trials, const StudyCell& cell) {
  return failure_reason(trials.run(cell, trials.run_of(cell), kLimit), kLimit);
}

// Its folder; the caller removes it.
fs::path run_cell(Trials& trials, const StudyCell& cell) {
  const std::string reason = failure_of(trials, cell);
  check(reason.empty(), "plan: ", cell.id, " cannot be trained: ", reason);
  return trials.run_of(cell);
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
  std::vector<int> batches = request.batches;
  std::ranges::sort(batches);
  const std::vector<int> some = some_of(batches);
  for (const int batch : batches) {
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

MeasureRequest paced(MeasureRequest request, const Pace& pace, int batch) {
  const double steps = kLineSeconds / std::max(1e-9, pace.step(batch));
  request.steps_a_line = static_cast<int>(std::clamp<double>(steps, 1, kMostSteps));
  return request;
}

double seconds_of(const MeasuredCell& cell, const MeasureRequest& request, const Pace& pace) {
  const int layers = cell.has_profile ? kLayerSteps : 0;
  const int steps = layers + steps_of_run(paced(request, pace, cell.batch), cell.has_profile);
  return pace.start + steps * pace.step(cell.batch) * measured(cell.as).slowness;
}

std::vector<int> affordable(const MeasureRequest& request, const Pace& pace) {
  constexpr int kLeast = 4;  // with its half and its quarter
  MeasureRequest tried = request;
  std::ranges::sort(tried.batches);
  const auto seconds = [&] {
    double sum = 0;
    for (const MeasuredCell& cell : profile_cells(tried)) sum += seconds_of(cell, tried, pace);
    return sum;
  };
  while (seconds() > request.seconds && tried.batches.back() > kLeast) {
    for (int& batch : tried.batches) batch = std::max(1, batch / 2);
    tried.batches.erase(
        std::unique(tried.batches.begin(), tried.batches.end()), tried.batches.end());
  }
  return tried.batches;
}

std::string count_text(std::size_t done, std::size_t all, double seconds_left) {
  return concat(done + 1, " of ", all, "; about ", format_duration(seconds_left), " left");
}

namespace {

/// Measures one model: a few steps tell what trainings take, then each of them is made that there
/// is time for.
class Measurement {
 public:
  Measurement(const MeasureRequest& request, const ProfileFacts& facts, const CellPaths& paths,
      const MeasureNews& news)
      : request_(request), facts_(facts), trials_(paths, "plan"), news_(news) {
    std::ranges::sort(request_.batches);
  }

  plan::ModelProfile run() {
    find_pace();
    for (int round = 0; round < request_.rounds; ++round) make_round(round);
    return profile_of_runs(runs_, facts_);
  }

 private:
  bool is_limited() const { return request_.seconds > 0; }

  // The second of the batches: one sample alone is too few for some nets.
  void find_pace() {
    const std::vector<int> named = request_.batches;
    const int second = named[std::min<std::size_t>(1, named.size() - 1)];
    const int first = is_limited() ? std::min(2, second) : second;
    std::vector<int> batches{first};
    std::ranges::remove_copy(named, std::back_inserter(batches), first);
    try_one_of(batches);
    if (is_limited()) limit_batches();
  }

  // The smallest is tried, too, if that is short: two tell what does not grow with the batch.
  void limit_batches() {
    constexpr double kShort = 10;
    const int least = request_.batches.front(), most = request_.batches.back();
    const auto tried = static_cast<int>(points_.front().batch);
    const MeasuredCell cell = cell_of(request_, MeasuredAs::kAlone, least, false);
    if (least > tried && seconds_of(cell, request_, pace_) < kShort) {
      const std::string reason = try_batch(least);
      if (!reason.empty()) refuse(least, reason);
    }
    request_.batches = affordable(request_, pace_);
    if (request_.batches.back() < most)
      news_.say(concat("measures batches of up to ", request_.batches.back(),
          ", as those of up to ", most, " would take longer than --measure-minutes"));
    // Of one it is known that it can be trained.
    if (!request_.refused.empty() && std::ranges::count(request_.batches, tried) == 0)
      request_.batches.push_back(tried);
  }

  // Until one can be trained. If another batch is refused for the same reason, it is not the
  // batch's.
  void try_one_of(const std::vector<int>& batches) {
    std::string before;
    for (const int batch : batches) {
      const std::string reason = try_batch(batch);
      if (reason.empty()) return;
      check(batch != batches.back() && reason != before, "plan: ", request_.model,
          " with batches of ", batch, " cannot be trained: ", reason);
      refuse(batch, reason);
      before = reason;
    }
  }

  // Steps one by one. Returns why the batch cannot be trained, if it cannot.
  std::string try_batch(int batch) {
    news_.say(concat("trying ", request_.model, " with batches of ", batch));
    MeasureRequest trial = request_;
    trial.steps_a_line = 1;
    const StudyCell cell = cell_of(trial, MeasuredAs::kAlone, batch, false).cell;
    const Stopwatch watch;
    std::string reason = failure_of(trials_, cell);
    const double seconds = watch.seconds();
    if (reason.empty()) {
      const auto steps = steps_in(trials_.run_of(cell), skipped_lines(trial, false));
      points_.push_back({static_cast<double>(batch), median(steps)});
      pace_.start = std::max(0.0, seconds - steps_of_run(trial, false) * points_.back().seconds);
      pace_.step = plan::CostCurve(points_);
    }
    fs::remove_all(trials_.run_of(cell));
    return reason;
  }

  void refuse(int batch, const std::string& reason) {
    news_.say(
        concat("batches of ", batch, " cannot be trained: ", reason, "; going on without them"));
    request_.refused.push_back(batch);
  }

  bool has_time_for(double seconds) const {
    return !is_limited() || watch_.seconds() + seconds <= request_.seconds;
  }

  // Of this round from the number on, which is made, and of what there is time for after it.
  double seconds_left(int round, std::size_t from) const {
    double left = 0;
    for (; round < request_.rounds; ++round, from = 0) {
      const auto cells = profile_cells(request_, round > 0);
      for (std::size_t i = from; i < cells.size(); ++i) {
        const double more = seconds_of(cells[i], request_, pace_);
        if (left == 0 || has_time_for(left + more)) left += more;
      }
    }
    return left;
  }

  // What is refused, or cannot be cut, is no longer among the cells.
  void make_round(int round) {
    std::size_t missed = 0;
    for (std::size_t i = 0; i < profile_cells(request_, round > 0).size();) {
      const auto cells = profile_cells(request_, round > 0);
      const bool is_made = is_to_be_made(cells[i], round);
      if (!is_made) ++missed;
      if (!is_made || make(cells[i], round, about_progress(round, i))) ++i;
    }
    if (round == 0 && missed > 0)
      news_.say(concat("had no time for ", missed, " of ", profile_cells(request_).size(),
          " trainings: --measure-minutes gives more"));
  }

  // What had no time at first has none later.
  bool is_to_be_made(const MeasuredCell& cell, int round) const {
    const auto& known = runs_.*measured(cell.as).runs;
    if (round > 0 && std::ranges::find(known, cell.batch, &ProfiledRun::batch) == known.end())
      return false;
    return runs_.alone.empty() || has_time_for(seconds_of(cell, request_, pace_));
  }

  std::string about_progress(int round, std::size_t number) const {
    const std::size_t cells = profile_cells(request_).size();
    return count_text(static_cast<std::size_t>(round) * cells + number,
        static_cast<std::size_t>(request_.rounds) * cells, seconds_left(round, number));
  }

  static std::string words_of_cell(const MeasuredCell& cell) {
    return concat(measured(cell.as).in_words, ", batches of ", cell.batch);
  }

  // Returns false for what is left out from now on.
  bool make(const MeasuredCell& planned, int round, const std::string& progress) {
    const bool is_again = round > 0;
    news_.say(concat("measuring ", request_.model, " by ", words_of_cell(planned),
        is_again ? ", again" : "", ": ", progress));
    const MeasureRequest request = paced(request_, pace_, planned.batch);
    const MeasuredCell cell =
        cell_of(request, planned.as, planned.batch, measured(planned.as).is_profiled && !is_again);
    try {
      const fs::path run = run_cell(trials_, cell.cell);
      keep(read_run(request, run, cell), runs_.*measured(cell.as).runs);
      fs::remove_all(run);
    } catch (const InvalidArgument& error) {
      if (!can_leave_out(cell)) throw;
      leave_out(cell, error.what());
      return false;
    }
    learn(cell);
    return true;
  }

  void learn(const MeasuredCell& cell) {
    if (cell.as == MeasuredAs::kAlone) {
      const ProfiledRun& run = *std::ranges::find(runs_.alone, cell.batch, &ProfiledRun::batch);
      std::erase_if(points_, [&](const auto& point) { return point.batch == run.batch; });
      points_.push_back({run.batch, median(run.step_seconds)});
      pace_.step = plan::CostCurve(points_);
      request_.has_accelerator = run.profile.ranks.front().unwaited_step.has_value();
      if (!can_be_cut(runs_)) leave_out_stages();
    }
    if (!runs_.alone.empty()) news_.keep(profile_of_runs(runs_, facts_));
  }

  void leave_out_stages() {
    if (std::ranges::find(request_.left_out, MeasuredAs::kStages) == request_.left_out.end())
      request_.left_out.push_back(MeasuredAs::kStages);
  }

  bool is_uncut(const MeasuredCell& cell) const {
    return cell.as == MeasuredAs::kStages && runs_.stages.empty();
  }

  bool can_leave_out(const MeasuredCell& cell) const {
    const auto left = std::ranges::count_if(request_.batches,
        [&](int batch) { return std::ranges::count(request_.refused, batch) == 0; });
    return is_uncut(cell) || (cell.as == MeasuredAs::kAlone && left > 1);
  }

  void leave_out(const MeasuredCell& cell, const std::string& reason) {
    news_.say(concat(reason, "; going on without ",
        is_uncut(cell) ? std::string("stages") : concat("batches of ", cell.batch)));
    if (is_uncut(cell))
      leave_out_stages();
    else
      request_.refused.push_back(cell.batch);
  }

  MeasureRequest request_;
  const ProfileFacts& facts_;
  Trials trials_;
  const MeasureNews& news_;
  const Stopwatch watch_;
  std::vector<plan::CostCurve::Point> points_;  // of the pace
  Pace pace_;
  ProfiledRuns runs_;
};

}  // namespace

plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const MeasureNews& news) {
  check(!request.batches.empty(), "plan: a profile is measured with at least one batch");
  return Measurement(request, facts, paths, news).run();
}

}  // namespace lockstep::bench
