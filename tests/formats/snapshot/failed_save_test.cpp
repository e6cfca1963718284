#include <array>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <system_error>

#include "tests/formats/snapshot/run_under_fault.h"
#include "tests/formats/snapshot/saved_snapshot.h"
#include "tests/formats/snapshot/system_calls.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/pending_snapshot.h"
#include "lockstep/snapshot/snapshot_check.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::RunUnderFault;
using testing::SystemCall;
using testing::WatchedCalls;

/// The outcome of a save.
struct Outcome {
  bool had_fault = false;
  SystemCall fault;                        ///< the first call that failed
  bool is_committed = false;               ///< it went on to LATEST
  std::optional<std::system_error> error;  ///< nothing if the save succeeded
};

/// Saves; the call number `at` fails, or all from there on.
Outcome save_with_fault(const RunUnderFault& run, int at, int code, bool forever) {
  Outcome outcome;
  int calls = 0;
  const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
    const int number = calls++;
    outcome.is_committed |= call.path.find("LATEST") != std::string::npos;
    const bool fails = number == at || (forever && number > at);
    if (number == at) {
      outcome.had_fault = true;
      outcome.fault = call;
    }
    if (fails) return code;
    return call.name == "fsync" ? int{testing::kPretended} : int{testing::kDone};
  });
  try {
    run.save();
  } catch (const std::system_error& error) {
    outcome.error = error;
  }
  return outcome;
}

/// Compares what a save said with what it left.
void expect_honesty(const RunUnderFault& run, const Outcome& outcome, int code, bool forever) {
  const int seed = run.newest_seed();
  if (!outcome.error) {
    EXPECT_EQ(seed, testing::kNewSeed) << "it said that it succeeded";
    return;
  }
  EXPECT_EQ(outcome.error->code().value(), code);
  EXPECT_THAT(outcome.error->what(), HasSubstr(run.path().string()));
  // A disk that takes nothing any more does not let itself be put right, either.
  if (forever && !outcome.is_committed) return;
  EXPECT_EQ(seed, outcome.is_committed ? testing::kNewSeed : testing::kOldSeed)
      << outcome.error->what();
}

class FailedSave : public ::testing::TestWithParam<testing::Scene> {};

TEST_P(FailedSave, SaysSoAndTheOldSnapshotStays) {
  constexpr std::array kCodes{ENOSPC, EDQUOT, EIO, EROFS};
  for (const bool forever : {false, true}) {
    int failed = 0;
    for (int at = 0;; ++at) {
      const RunUnderFault run(GetParam());
      const int code = kCodes[static_cast<std::size_t>(at + (forever ? 2 : 0)) % kCodes.size()];
      const Outcome outcome = save_with_fault(run, at, code, forever);
      if (!outcome.had_fault) break;
      SCOPED_TRACE(concat("errno ", code, forever ? " from " : " at ", outcome.fault.name, ' ',
          outcome.fault.path));
      failed += outcome.error.has_value() ? 1 : 0;
      expect_honesty(run, outcome, code, forever);
      run.expect_that_life_goes_on();
      if (HasFailure()) return;
    }
    EXPECT_GT(failed, 40);
  }
}

TEST_P(FailedSave, IsNoneWhenCallsAreInterruptedOrShort) {
  const RunUnderFault run(GetParam());
  int interruptions = 0;
  std::string last;
  {
    const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
      const bool can_be = call.name == "write" || call.name == "read" || call.name == "fsync" ||
                          call.name == "openat" || call.name == "create" || call.name == "close";
      const std::string now = call.name + call.path;
      // Twice each, then half of what was asked for.
      interruptions = now == last && interruptions < 3 ? interruptions + 1 : 0;
      last = now;
      if (can_be && interruptions < 2) return EINTR;
      if (call.name == "fsync") return int{testing::kPretended};
      return int{testing::kShort};
    });
    run.save();
  }
  EXPECT_EQ(run.newest_seed(), testing::kNewSeed);
  run.expect_that_life_goes_on();
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, FailedSave, ::testing::ValuesIn(testing::kScenes), testing::name_of_scene);

/// Is a disk that syncs what it is told once, and then says that all is well.
TEST(FailedSync, IsNotTriedAgain) {
  const RunUnderFault run(testing::Scene::kLaterStep);
  int syncs = 0;
  auto pending = PendingSnapshot::begin(SnapshotFolder(run.run()), 30);
  const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
    if (call.name != "fsync") return int{testing::kDone};
    return ++syncs == 1 ? EIO : int{testing::kPretended};
  });
  EXPECT_THROW(pending.write("a", "text"), std::system_error);
  EXPECT_THROW(pending.write("b", "text"), InvalidArgument) << "this snapshot is lost";
  SnapshotManifest manifest{.step = 30, .libtorch = "2", .lockstep = {}, .files = {}};
  manifest.files.push_back({"a", 4, std::string(64, '0')});
  EXPECT_THROW(pending.commit(manifest), InvalidArgument);
  EXPECT_EQ(syncs, 1);
}

/// A file system that cannot exchange two folders, such as NFS.
class WithoutExchange : public ::testing::Test {
 protected:
  void save(int& renames) const {
    const WatchedCalls watched(run_.path(), [&](const SystemCall& call) {
      if (call.name == "exchange") return EINVAL;
      renames += call.name == "rename" ? 1 : 0;
      return int{testing::kDone};
    });
    testing::save_snapshot(run_.run(), 20, testing::kNewSeed);
  }

  RunUnderFault run_{testing::Scene::kSameStep};
};

TEST_F(WithoutExchange, AGoodSnapshotOfTheSameStepStays) {
  int renames = 0;
  save(renames);
  EXPECT_EQ(run_.newest_seed(), testing::kOldSeed);
  EXPECT_EQ(renames, 2) << "the attempt, and LATEST";
  run_.expect_that_life_goes_on();
}

TEST_F(WithoutExchange, ABrokenSnapshotOfTheSameStepGoes) {
  fs::resize_file(run_.run() / "snapshots" / "step-00000020" / "state.json", 3);
  int renames = 0;
  save(renames);
  EXPECT_EQ(run_.newest_seed(), testing::kNewSeed);
  run_.expect_that_life_goes_on();
}

class ForeignOwnerTest : public ::testing::Test {
 protected:
  testing::RunUnderFault run_{testing::Scene::kLaterStep};
  SnapshotFolder folder_{run_.run()};
  fs::path newest_ = folder_.newest().path;
};

TEST_F(ForeignOwnerTest, OfASnapshotOrItsFilesIsRefused) {
  for (const fs::path& path :
      {newest_, newest_ / "manifest.json", newest_ / "model.safetensors", newest_ / "state.json"}) {
    const testing::ForeignOwner foreign(path);
    const SnapshotChoice choice = folder_.newest();
    EXPECT_EQ(choice.path.filename(), "step-00000018") << "the older one serves";
    ASSERT_EQ(choice.refused.size(), 1U);
    EXPECT_EQ(choice.refused[0].name, newest_.filename());
    EXPECT_THAT(choice.refused[0].reason, HasSubstr(path.string() + ": belongs to user "));
    EXPECT_THROW(verify_snapshot(newest_), DataError);
  }
  EXPECT_EQ(verify_snapshot(newest_).step, 19);
}

TEST_F(ForeignOwnerTest, OfTheFolderOfSnapshotsIsRefused) {
  const testing::ForeignOwner foreign(folder_.path());
  EXPECT_THROW(folder_.newest(), DataError);
  EXPECT_THROW(folder_.best(), DataError);
  EXPECT_THROW(folder_.prune(1, 19), DataError);
  EXPECT_THROW(folder_.remove_leftovers(), DataError);
  EXPECT_THROW(PendingSnapshot::begin(folder_, 20), DataError);
}

TEST_F(ForeignOwnerTest, OfTheFileThatNamesTheBestIsRefused) {
  const testing::ForeignOwner foreign(folder_.path() / "best");
  EXPECT_THROW(folder_.best(), DataError);
  EXPECT_THROW(folder_.prune(1, 19), DataError) << "or it might remove the best one";
}

TEST_F(ForeignOwnerTest, OfWhatIsToBeReplacedOrJoinedIsRefused) {
  const auto pending = PendingSnapshot::begin(folder_, 20);
  {
    const testing::ForeignOwner foreign(pending.path());
    EXPECT_THROW(PendingSnapshot::join(pending.path()), DataError);
  }
  const testing::ForeignOwner foreign(newest_);
  EXPECT_THROW(PendingSnapshot::begin(folder_, 19), DataError);
}

}  // namespace

}  // namespace lockstep
