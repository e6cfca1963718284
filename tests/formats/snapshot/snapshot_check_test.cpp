#include "lockstep/snapshot/snapshot_check.h"

#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/formats/snapshot/manifest_text.h"
#include "tests/formats/snapshot/saved_snapshot.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SnapshotCheckTest : public ::testing::Test {
 protected:
  std::string refusal() const { return refusal(snapshot_); }
  static std::string refusal(const fs::path& snapshot) {
    return testing::message_of<DataError>([&] { verify_snapshot(snapshot); });
  }

  /// Makes a socket where a file was.
  static void bind_socket(const fs::path& path) {
    const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  testing::TemporaryFolder directory_;
  fs::path snapshot_ = testing::save_snapshot(directory_.path() / "run", 7, 1);
  fs::path state_ = snapshot_ / "state.json";
};

TEST_F(SnapshotCheckTest, TakesAGoodOneByAnyPath) {
  EXPECT_EQ(verify_snapshot(snapshot_).step, 7);
  EXPECT_EQ(verify_snapshot(snapshot_ / "").step, 7);
  EXPECT_EQ(verify_snapshot(snapshot_ / "." / ".." / "step-00000007").step, 7);
  fs::rename(snapshot_, directory_.path() / "copied away");
  EXPECT_EQ(verify_snapshot(directory_.path() / "copied away").step, 7);
  fs::create_directory_symlink(directory_.path(), directory_.path() / "link");
  EXPECT_EQ(verify_snapshot(directory_.path() / "link" / "copied away").step, 7)
      << "where the folder lies is the user's choice";
}

TEST_F(SnapshotCheckTest, NeedsTheNameOfItsOwnStep) {
  const fs::path other = snapshot_.parent_path() / "step-00000008";
  fs::rename(snapshot_, other);
  EXPECT_THAT(refusal(other), HasSubstr("named after another step than 7"));
}

TEST_F(SnapshotCheckTest, NamesTheFileAndTheReason) {
  fs::resize_file(state_, 5);
  EXPECT_THAT(refusal(), HasSubstr(state_.string() + ": has 5 bytes, the manifest says 16"));
  std::ofstream(state_) << R"({"v":1,"seed":3})";
  EXPECT_THAT(refusal(), AllOf(HasSubstr(state_.string()), HasSubstr("damaged")));
  fs::remove(state_);
  EXPECT_THAT(refusal(), HasSubstr(state_.string() + ": is missing"));
  std::ofstream(snapshot_ / "more\x1b") << "x";
  EXPECT_THAT(refusal(), HasSubstr(R"(holds "more\x1b", which its manifest does not list)"));
}

TEST_F(SnapshotCheckTest, NeedsItsManifest) {
  const fs::path manifest = snapshot_ / "manifest.json";
  fs::resize_file(manifest, kMostManifestBytes + 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(manifest.string()), HasSubstr("more than the 1048576")));
  fs::resize_file(manifest, 0);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(manifest.string()), HasSubstr("not JSON")));
  fs::remove(manifest);
  EXPECT_THAT(refusal(), HasSubstr(manifest.string() + ": is missing"));
}

TEST_F(SnapshotCheckTest, FollowsNoLinks) {
  const fs::path away = directory_.path() / "away";
  fs::rename(state_, away);
  fs::create_symlink(away, state_);
  EXPECT_THAT(refusal(), HasSubstr(state_.string() + ": is a link"));
  fs::remove(state_);
  fs::rename(away, state_);
  const fs::path link = directory_.path() / "link";
  fs::create_directory_symlink(snapshot_, link);
  EXPECT_THAT(refusal(link), HasSubstr("links are not followed"));
  EXPECT_THAT(refusal(link / ""), HasSubstr("links are not followed"));
  EXPECT_NO_THROW(verify_snapshot(snapshot_));
}

TEST_F(SnapshotCheckTest, WaitsForNothing) {
  const std::vector<std::function<void()>> kinds{
      [&] { ASSERT_EQ(::mkfifo(state_.c_str(), 0600), 0); }, [&] { fs::create_directory(state_); },
      [&] { bind_socket(state_); }};
  for (const auto& make : kinds) {
    fs::remove_all(state_);
    make();
    EXPECT_THAT(refusal(), HasSubstr(state_.string() + ": is not a regular file"));
  }
}

TEST_F(SnapshotCheckTest, ReadsNoFileThatLeavesTheFolder) {
  const fs::path manifest = snapshot_ / "manifest.json";
  std::string text;
  std::getline(std::ifstream(manifest), text);
  fs::rename(state_, snapshot_.parent_path() / "state.json");
  text.replace(text.find("state.json"), 10, "../state.json");
  std::ofstream(manifest) << testing::with_true_digest(text);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(manifest.string()), HasSubstr("not one that a snapshot")));
}

TEST_F(SnapshotCheckTest, NeedsAFolder) {
  EXPECT_THAT(refusal(state_), HasSubstr("is not a folder"));
  EXPECT_THROW(verify_snapshot(directory_.path() / "none"), std::system_error);
}

}  // namespace
}  // namespace lockstep
