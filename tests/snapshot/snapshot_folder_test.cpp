#include "lockstep/snapshot/snapshot_folder.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/snapshot/saved_snapshot.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SnapshotFolderTest : public ::testing::Test {
 protected:
  void save(std::initializer_list<std::int64_t> steps) const {
    for (const std::int64_t step : steps) testing::save_snapshot(folder_.run(), step, 1);
  }
  void damage(const std::string& name) const {
    std::ofstream(folder_.path() / name / "state.json") << R"({"v":1,"seed":9})";
  }
  std::vector<std::string> names() const { return OpenDirectory::open(folder_.path()).names(); }

  testing::TemporaryFolder directory_;
  SnapshotFolder folder_{directory_.path() / "run"};
};

TEST_F(SnapshotFolderTest, MayBeMissing) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(folder_.newest().path.empty());
    EXPECT_TRUE(folder_.newest().refused.empty());
    EXPECT_TRUE(folder_.best().empty());
    folder_.remove_leftovers();
    EXPECT_FALSE(fs::exists(folder_.path()));
    fs::create_directories(folder_.run());
  }
}

TEST_F(SnapshotFolderTest, FindsTheNewestByNumberAndNamesWhatItRefuses) {
  save({99'999'999, 100'000'000, 5});
  EXPECT_EQ(folder_.newest().path, folder_.path() / "step-100000000");
  EXPECT_EQ(folder_.newest().manifest.step, 100'000'000);
  damage("step-100000000");
  fs::remove(folder_.path() / "step-99999999" / "manifest.json");
  const SnapshotChoice choice = folder_.newest();
  EXPECT_EQ(choice.path, folder_.path() / "step-00000005");
  ASSERT_EQ(choice.refused.size(), 2U);
  EXPECT_EQ(choice.refused[0].name, "step-100000000");
  EXPECT_THAT(choice.refused[0].reason, HasSubstr("damaged"));
  EXPECT_EQ(choice.refused[1].name, "step-99999999");
  EXPECT_THAT(choice.refused[1].reason, HasSubstr("manifest.json: is missing"));
}

TEST_F(SnapshotFolderTest, FindsNoneWhenAllAreBroken) {
  save({5});
  damage("step-00000005");
  fs::create_directory(folder_.path() / "step-00000006");
  std::ofstream(folder_.path() / "step-00000007") << "a file";
  fs::create_directory_symlink("step-00000005", folder_.path() / "step-00000008");
  fs::copy(folder_.path() / "step-00000005", folder_.path() / "step-00000009");
  const SnapshotChoice choice = folder_.newest();
  EXPECT_TRUE(choice.path.empty());
  EXPECT_EQ(choice.manifest, SnapshotManifest());
  EXPECT_EQ(choice.refused.size(), 5U);
}

TEST_F(SnapshotFolderTest, DoesNotTakeTheNameOfAnother) {
  save({5});
  fs::copy(folder_.path() / "step-00000005", folder_.path() / "step-00000006");
  const SnapshotChoice choice = folder_.newest();
  EXPECT_EQ(choice.path, folder_.path() / "step-00000005");
  ASSERT_EQ(choice.refused.size(), 1U);
  EXPECT_THAT(choice.refused[0].reason, HasSubstr("that of step 5"));
}

TEST_F(SnapshotFolderTest, DoesNotLookAtLatest) {
  save({5, 6});
  for (const char* text : {"step-00000005\n", "", "../../etc\n"}) {
    std::ofstream(folder_.path() / "LATEST") << text;
    EXPECT_EQ(folder_.newest().path, folder_.path() / "step-00000006");
  }
  fs::remove(folder_.path() / "LATEST");
  fs::create_symlink("/etc/passwd", folder_.path() / "LATEST");
  EXPECT_EQ(folder_.newest().path, folder_.path() / "step-00000006");
  save({7});
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder_.path() / "LATEST")));
}

TEST_F(SnapshotFolderTest, KnowsTheBest) {
  save({5, 6});
  EXPECT_TRUE(folder_.best().empty());
  folder_.set_best(5);
  EXPECT_EQ(folder_.best(), folder_.path() / "step-00000005");
  folder_.set_best(6);
  EXPECT_EQ(folder_.best(), folder_.path() / "step-00000006");
  EXPECT_THROW(folder_.set_best(7), InvalidArgument);
  fs::remove_all(folder_.path() / "step-00000006");
  EXPECT_THROW(folder_.best(), DataError);
}

TEST_F(SnapshotFolderTest, RefusesABestThatIsNone) {
  save({5, 6});
  const fs::path best = folder_.path() / "best";
  for (const char* text : {"", "step-00000005", "step-5\n", "../step-00000005\n", "/etc\n",
           "step-00000005\nstep-00000006\n"}) {
    std::ofstream(best) << text;
    EXPECT_THROW(folder_.best(), DataError) << text;
  }
  std::ofstream(best) << std::string(1000, 'x');
  EXPECT_THROW(folder_.best(), DataError);
  fs::remove(best);
  fs::create_directory_symlink("step-00000005", best);
  EXPECT_THROW(folder_.best(), DataError);
  EXPECT_THROW(folder_.prune(1, 6), DataError);
  EXPECT_THAT(names(), ElementsAre("LATEST", "best", "step-00000005", "step-00000006"));
  folder_.set_best(5);
  EXPECT_EQ(folder_.best(), folder_.path() / "step-00000005");
}

TEST_F(SnapshotFolderTest, PrunesAllButTheNewestAndTheBest) {
  save({1, 2, 3, 4, 5});
  folder_.set_best(2);
  folder_.prune(2, 5);
  EXPECT_THAT(
      names(), ElementsAre("LATEST", "best", "step-00000002", "step-00000004", "step-00000005"));
  folder_.set_best(5);
  folder_.prune(1, 5);
  EXPECT_THAT(names(), ElementsAre("LATEST", "best", "step-00000005"));
  EXPECT_THROW(folder_.prune(0, 5), InvalidArgument);
}

TEST_F(SnapshotFolderTest, CountsNoBrokenOnesAndNoLaterOnesWhenItPrunes) {
  save({1, 2, 3, 4, 9});
  fs::resize_file(folder_.path() / "step-00000003" / "state.json", 1);
  folder_.prune(2, 4);
  EXPECT_THAT(names(),
      ElementsAre("LATEST", "step-00000002", "step-00000003", "step-00000004", "step-00000009"));
  folder_.prune(1, 4);
  EXPECT_THAT(names(), ElementsAre("LATEST", "step-00000004", "step-00000009"));
}

TEST_F(SnapshotFolderTest, RemovesLeftoversAndNothingElse) {
  save({5});
  const fs::path path = folder_.path();
  fs::create_directories(path / ".step-00000006.abcdef" / "inner" / "deep");
  std::ofstream(path / ".step-00000006.abcdef" / "inner" / "a") << "x";
  std::ofstream(path / ".LATEST.77.part") << "x";
  fs::create_directory_symlink(path / "step-00000005", path / ".step-00000007.abcdef");
  std::ofstream(path / "notes.txt") << "x";
  fs::create_directory(path / ".step-old");
  folder_.remove_leftovers();
  EXPECT_THAT(names(), ElementsAre(".step-old", "LATEST", "notes.txt", "step-00000005"));
  EXPECT_FALSE(folder_.newest().path.empty());
}

TEST_F(SnapshotFolderTest, MustBeNoLink) {
  const SnapshotFolder other(directory_.path() / "other");
  save({5});
  fs::create_directory(other.run());
  fs::create_directory_symlink(folder_.path(), other.path());
  EXPECT_THROW(other.newest(), DataError);
  EXPECT_THROW(other.best(), DataError);
  EXPECT_THROW(other.set_best(5), DataError);
  EXPECT_THROW(other.prune(1, 5), DataError);
  EXPECT_THROW(other.remove_leftovers(), DataError);
  EXPECT_THROW(testing::save_snapshot(other.run(), 6, 1), DataError);
  fs::remove(other.path());
  std::ofstream(other.path()) << "a file";
  EXPECT_THROW(other.newest(), DataError);
}

TEST_F(SnapshotFolderTest, DoesNotExchangeWhatIsNoFolder) {
  save({5});
  fs::create_directory_symlink("step-00000005", folder_.path() / "step-00000006");
  EXPECT_THROW(save({6}), DataError);
  std::ofstream(folder_.path() / "step-00000007") << "x";
  EXPECT_THROW(save({7}), DataError);
  EXPECT_TRUE(fs::is_symlink(folder_.path() / "step-00000006"));
  fs::create_directory(folder_.path() / "step-00000008");
  save({8});
  EXPECT_EQ(folder_.newest().path, folder_.path() / "step-00000008");
}

}  // namespace
}  // namespace lockstep
