#include "lockstep/train/snapshot/lone_save.h"

#include <filesystem>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include "tests/train/snapshot/snapshot_parts.h"
#include "tests/train/snapshot/training_steps.h"

#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/train/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::names_in;
using testing::TemporaryFolder;

// What a rank of the number saves of a step.
SnapshotPart part(std::int64_t step, int rank = 0, std::int64_t size = 100) {
  SnapshotPart part;
  part.files["model.safetensors"] = {
      .tensors = testing::named("weight", torch::full({size}, static_cast<double>(step)))};
  part.files["rank-00000.safetensors"] = {.tensors = testing::named("own", torch::full({1}, rank))};
  part.state = concat("{\"step\":", step, "}");
  return part;
}

SnapshotReader newest(const TemporaryFolder& run) {
  return SnapshotReader(SnapshotFolder(run.path()).newest());
}

TEST(LoneSave, MakesAWholeSnapshot) {
  const TemporaryFolder run;
  EXPECT_TRUE(save_alone(run.path(), 2, 7, part(7)));
  const SnapshotReader reader = newest(run);
  EXPECT_EQ(reader.step(), 7);
  EXPECT_EQ(reader.ranks(), 1);
  EXPECT_EQ(reader.state(), "{\"step\":7}");
  testing::expect_same_bits(reader.model()["weight"], torch::full({100}, 7.0));
}

TEST(LoneSave, KeepsAsManyAsOthersDoAndTheBest) {
  const TemporaryFolder run;
  for (const std::int64_t step : {1, 2, 3, 4}) {
    SnapshotPart whole = part(step);
    whole.best = step == 1;
    EXPECT_TRUE(save_alone(run.path(), 2, step, whole));
  }
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"),
      ElementsAre("LATEST", "best", "step-00000001", "step-00000003", "step-00000004"));
}

TEST(LoneSave, IsDoneByOneOfThoseThatCome) {
  const TemporaryFolder run;
  std::vector<std::future<bool>> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(std::async(std::launch::async,
        [&run, rank] { return save_alone(run.path(), 2, 7, part(7, rank, 2'000'000)); }));
  int saved = 0;
  for (auto& rank : ranks) saved += rank.get() ? 1 : 0;
  EXPECT_EQ(saved, 1);
  EXPECT_FALSE(save_alone(run.path(), 2, 7, part(7))) << "it is there";
  EXPECT_EQ(newest(run).step(), 7);
}

// Ranks may lose each other after different steps.
TEST(LoneSave, OfALaterStepIsAnotherOne) {
  const TemporaryFolder run;
  fs::create_directories(fs::path(run.path()) / "snapshots" / rescue_name(7));
  EXPECT_FALSE(save_alone(run.path(), 2, 7, part(7))) << "another rank is at it";
  EXPECT_TRUE(save_alone(run.path(), 2, 8, part(8)));
  EXPECT_EQ(newest(run).step(), 8);
  SnapshotFolder(run.path()).remove_leftovers();
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000008"));
}

TEST(LoneSave, LeavesNothingWhereTheDiskIsFull) {
  const TemporaryFolder run;
  ASSERT_TRUE(save_alone(run.path(), 2, 6, part(6)));
  {
    const testing::FileSizeLimit limit(10'000);
    EXPECT_THROW(save_alone(run.path(), 2, 7, part(7, 0, 100'000)), std::system_error);
  }
  EXPECT_EQ(newest(run).step(), 6);
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000006"));
}

}  // namespace
}  // namespace lockstep
