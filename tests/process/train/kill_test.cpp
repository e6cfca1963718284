// Kills runs at random moments, also while they save, and lets them go on: they end as if nobody
// had disturbed them. A seeded part of what benchmarks/soak.py does.

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <set>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

struct Kind {
  std::string name;
  std::string flags;
  int ranks = 1;
  int kills = 0;
};

// When to kill which process.
struct Moment {
  bool while_saving = false;
  int save = 0;           // of this attempt, from 1
  Milliseconds delay{0};  // after the start, or after the save was begun
  int victim = 0;         // a rank, or -1: everything at once
};

std::ostream& operator<<(std::ostream& out, const Moment& moment) {
  out << (moment.victim < 0 ? "everything" : "rank " + std::to_string(moment.victim)) << ' '
      << moment.delay.count() << " ms after ";
  return moment.while_saving ? out << "save " << moment.save << " was begun" : out << "the start";
}

// Counts the folders in which a run writes its snapshots, as they appear.
class SaveWatch {
 public:
  explicit SaveWatch(const ResumableRun& run) : run_(run) {
    for (const auto& name : run_.snapshot_names()) seen_.insert(name);
  }

  int saves() {
    for (const auto& name : run_.snapshot_names()) {
      if (name.starts_with(".step-") && seen_.insert(name).second) ++saves_;
    }
    return saves_;
  }

 private:
  const ResumableRun& run_;
  std::set<std::string> seen_;
  int saves_ = 0;
};

class TrainKill : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::seed_seq seed(GetParam().name.begin(), GetParam().name.end());
    engine_.seed(seed);
    const ResumableRun run(flags());
    const auto begin = std::chrono::steady_clock::now();
    run.complete();
    duration_ = std::chrono::steady_clock::now() - begin;
    expected_ = run.outcome();
  }

  std::string flags() const {
    const std::string flags =
        "--model mnist-small --epochs 2 --batch-size 16 --log-interval 3 --no-rescue "
        "--snapshot-interval 5steps " +
        data_.flag() + " " + GetParam().flags;
    if (GetParam().ranks == 1) return flags;
    return flags + " --max-restarts 0 --nproc-per-node " + std::to_string(GetParam().ranks);
  }

  Moment draw() {
    const auto share = [&] { return std::uniform_real_distribution<double>()(engine_); };
    Moment moment{.while_saving = share() < 0.5};
    moment.victim = std::uniform_int_distribution<int>(-1, GetParam().ranks - 1)(engine_);
    moment.save = std::uniform_int_distribution<int>(1, 4)(engine_);
    moment.delay = moment.while_saving ? Milliseconds(20 * share() * share()) : duration_ * share();
    return moment;
  }

  // Waits for the moment and kills; false when the run ended before.
  static bool strike(const ResumableRun& run, const Command& command, const Moment& moment) {
    const auto begin = std::chrono::steady_clock::now();
    const auto ended = [&] { return !is_running(command.pid()); };
    SaveWatch watch(run);
    const auto has_come = [&] {
      return moment.while_saving ? watch.saves() >= moment.save
                                 : std::chrono::steady_clock::now() - begin >= moment.delay;
    };
    while (!has_come()) {
      if (ended()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    if (moment.while_saving) std::this_thread::sleep_for(moment.delay);
    return !ended() && kill_victim(run, moment.victim);
  }

  static bool kill_victim(const ResumableRun& run, int victim) {
    if (victim >= 0) {
      const pid_t rank = run.rank(victim);
      return rank > 0 && ::kill(rank, SIGKILL) == 0;
    }
    bool killed = false;
    for (const pid_t process : run.processes()) killed = ::kill(process, SIGKILL) == 0 || killed;
    return killed;
  }

  // Kills one run once; nothing when it ended before its moment had come.
  std::optional<Outcome> killed_run(const Moment& moment) const {
    const ResumableRun run(flags());
    Command command = run.start();
    const bool struck = strike(run, command, moment);
    const Ended first = command.wait();
    if (!struck) return std::nullopt;
    EXPECT_TRUE(eventually([&] { return run.processes().empty(); })) << "a process was left";
    EXPECT_TRUE(run.newest().refused.empty()) << run.newest().refused.front().reason;
    if (first.code() == 0) return run.outcome();  // in its last moments
    run.complete();
    EXPECT_THAT(
        run.snapshot_names(), ::testing::Each(::testing::Not(::testing::StartsWith(".step"))));
    return run.outcome();
  }

  IdxFiles data_{320, 64};
  std::mt19937_64 engine_;
  Milliseconds duration_{0};
  Outcome expected_;
};

TEST_P(TrainKill, AtARandomMomentChangesNothing) {
  int kills = 0;
  for (int tries = 0; kills < GetParam().kills && tries < 5 * GetParam().kills; ++tries) {
    const Moment moment = draw();
    SCOPED_TRACE(::testing::Message() << "killed " << moment);
    const auto outcome = killed_run(moment);
    if (!outcome) continue;
    ++kills;
    expect_same(expected_, *outcome);
  }
  EXPECT_EQ(kills, GetParam().kills) << "too many runs ended before they were killed";
}

INSTANTIATE_TEST_SUITE_P(Every, TrainKill,
    ::testing::Values(Kind{"serial", "--sched cosine --sched-on-updates", 1, 4},
        Kind{"dp", "--parallel dp --places 2 --opt sgd", 1, 3},
        Kind{"ddp", "--shard-optimizer --model-ema", 2, 4},
        Kind{"pp", "--parallel pp --chunks 4 --balance count", 2, 4},
        // Few processors compute convolutions in bfloat16 themselves.
        Kind{"bf16",
            "--precision bf16-mixed --grad-accum-steps 2 --model toy --data mock "
            "--limit-train-batches 20",
            2, 3},
        Kind{"workers", "--augment crop-flip --workers 2", 2, 3}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace lockstep::testing
