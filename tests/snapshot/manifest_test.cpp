#include "lockstep/snapshot/manifest.h"

#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/snapshot/saved_snapshot.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kHash(64, 'a');

SnapshotManifest example() {
  return {.step = 1200,
      .libtorch = "2.15.0",
      .lockstep = "0.1.0",
      .files = {{"model.safetensors", 104, kHash}, {"state.json", 0, std::string(64, '0')}}};
}

/// Reads the example with one part of its text replaced, and the digest made to fit.
std::string refusal(const std::string& part, const std::string& other) {
  std::string text = to_json(example());
  const std::size_t place = text.find(part);
  EXPECT_NE(place, std::string::npos) << part;
  text.replace(place, part.size(), other);
  const std::string message =
      testing::message_of<DataError>([&] { parse_manifest(testing::with_true_digest(text), "m"); });
  EXPECT_THAT(message, StartsWith("m: ")) << text;
  return message;
}

TEST(Manifest, IsReadAsItIsWritten) {
  const std::string text = to_json(example());
  EXPECT_THAT(
      text, StartsWith(R"({"v":1,"step":1200,"libtorch":"2.15.0","lockstep":"0.1.0","files":[)"));
  EXPECT_EQ(parse_manifest(text, "m"), example());
  EXPECT_EQ(testing::with_true_digest(text), text);
}

// So an older Lockstep refuses a snapshot whose tensors lie in parts, and reads any other.
TEST(Manifest, HasTheVersionThatItsTensorsNeed) {
  SnapshotManifest manifest = example();
  manifest.has_parts = true;
  const std::string text = to_json(manifest);
  EXPECT_THAT(text, StartsWith(R"({"v":2,"step":1200,)"));
  EXPECT_EQ(parse_manifest(text, "m"), manifest);
}

TEST(Manifest, OfANewerLockstepSaysSo) {
  EXPECT_THAT(refusal(R"("v":1)", R"("v":3)"), HasSubstr("newer Lockstep"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":3,"more":[{}])"), HasSubstr("newer Lockstep"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":0)"), HasSubstr("no version 0"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":-1)"), HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"("v":1,)", ""), HasSubstr("v must be there"));
}

TEST(Manifest, MustBeCompleteJsonOfItsOwnKeys) {
  EXPECT_THAT(refusal("true", "false"), HasSubstr("never finished"));
  EXPECT_THAT(refusal("true", "1"), HasSubstr("complete must be true"));
  EXPECT_THAT(refusal(R"(,"complete":true)", ""), HasSubstr("complete must be there"));
  EXPECT_THAT(refusal(R"("step":1200,)", ""), HasSubstr("step must be there"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":1200,"x":0)"), HasSubstr("a key too many"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":1,"step":1200)"), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":[[[[[]]]]])"), HasSubstr("within each other"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":)"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("2.15.0", "\xff"), HasSubstr("not JSON"));
}

TEST(Manifest, NeedsWholeNumbersAndTexts) {
  for (const char* step : {"-1", "1.5", "1e3", "\"1\"", "null", "9223372036854775808", "1e999"}) {
    EXPECT_NE(refusal("1200", step), "") << step;
    EXPECT_NE(refusal("104", step), "") << step;
  }
  EXPECT_THAT(refusal(R"("2.15.0")", "2"), HasSubstr("must be a text"));
}

TEST(Manifest, ListsFilesOfTheFolderOnly) {
  for (const char* name :
      {"../x", "a/b", "/x", "", ".", "..", "manifest.json", ".x", "a\\u0000b"}) {
    EXPECT_THAT(refusal("state.json", name), HasSubstr("not one that a snapshot")) << name;
  }
  EXPECT_THAT(refusal("state.json", "model.safetensors"), HasSubstr("listed twice"));
  EXPECT_THAT(refusal(kHash, kHash + "a"), HasSubstr("files[0].sha256 must be 64"));
  EXPECT_THAT(refusal(kHash, std::string(64, 'A')), HasSubstr("files[0].sha256 must be 64"));
  EXPECT_THAT(refusal(R"("bytes":104,)", ""), HasSubstr("files[0].bytes must be there"));
  EXPECT_THAT(refusal(R"("bytes":104,)", R"("bytes":104,"x":1,)"), HasSubstr("a key too many"));
  const std::string text = to_json(example());
  const std::size_t list = text.find('[');
  EXPECT_THAT(
      refusal(text.substr(list, text.find(']') - list + 1), "[]"), HasSubstr("at least one file"));
}

TEST(Manifest, GuardsItself) {
  const std::string text = to_json(example());
  for (std::size_t place = 0; place < text.size(); ++place) {
    for (const int bit : {0, 3, 5}) {
      std::string changed = text;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(changed, "m"), DataError) << changed;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, place), "m"), DataError);
  }
  for (const std::string& changed : {text + "\n", text + " ", " " + text, "\xef\xbb\xbf" + text}) {
    EXPECT_THROW(parse_manifest(changed, "m"), DataError) << changed;
  }
}

TEST(Manifest, HasAnEnd) {
  SnapshotManifest manifest = example();
  manifest.libtorch = std::string(kMostManifestBytes, 'x');
  EXPECT_THROW(to_json(manifest), InvalidArgument);
  EXPECT_THROW(parse_manifest(std::string(kMostManifestBytes + 1, ' '), "m"), DataError);
  EXPECT_THROW(parse_manifest(std::string(kMostManifestBytes, '['), "m"), DataError);
  EXPECT_THROW(parse_manifest("", "m"), DataError);
}

TEST(Manifest, IsNotWrittenOfNonsense) {
  const auto refused = [](const auto& change) {
    SnapshotManifest manifest = example();
    change(manifest);
    EXPECT_THROW(to_json(manifest), InvalidArgument);
  };
  refused([](SnapshotManifest& manifest) { manifest.step = -1; });
  refused([](SnapshotManifest& manifest) { manifest.files.clear(); });
  refused([](SnapshotManifest& manifest) { manifest.files[0].name = "../x"; });
  refused([](SnapshotManifest& manifest) { manifest.files[0].name = manifest.files[1].name; });
  refused([](SnapshotManifest& manifest) { manifest.files[0].sha256 = "abc"; });
  refused([](SnapshotManifest& manifest) { manifest.libtorch = "\xff"; });
}

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
