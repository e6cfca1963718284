#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/pending_snapshot.h"
#include "lockstep/formats/snapshot/snapshot_check.h"

#include "tests/formats/snapshot/run_under_fault.h"
#include "tests/formats/snapshot/system_calls.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ForeignOwnerTest : public ::testing::Test {
 protected:
  testing::RunUnderFault run_{testing::Scene::kLaterStep};
  SnapshotFolder folder_{run_.run()};
  fs::path newest_ = folder_.newest().path;
};

TEST_F(ForeignOwnerTest, OfASnapshotOrItsFilesIsRefused) {
  for (const fs::path& path :
       {newest_, newest_ / "manifest.json", newest_ / "model.safetensors",
        newest_ / "state.json"}) {
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
