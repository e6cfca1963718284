// Spoils the folder of a run: removed, linked elsewhere, misnamed, forged.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/process/train/run_folder.h"

#include "lockstep/formats/checksum.h"
#include "lockstep/snapshot/manifest.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RunFolder, ItsLossIsNoticed) {
  for (const std::string ranks : {"", "--nproc-per-node 2"}) {
    const ResumableRun run(long_flags(ranks));
    Command command = run.start();
    ASSERT_TRUE(wait_for_lines(run, command));
    fs::rename(run.output(), run.output() + "-moved");
    EXPECT_THAT(command.wait().with_code(4).err,
        AllOf(HasSubstr("removed, renamed or replaced"), HasSubstr(run.file("metrics.jsonl"))));
  }
}

TEST_F(RunFolder, LinksInItAreNotFollowed) {
  const ResumableRun run(flags("--max-steps 3 --nproc-per-node 2"));
  run.complete();
  const TemporaryFolder folder;
  for (const std::string name : {"metrics.jsonl", "logs/rank-1.log"}) {
    std::ofstream(folder.file("other")) << "precious";
    const std::string kept = run.file(name) + ".kept";
    fs::rename(run.file(name), kept);
    fs::create_symlink(folder.file("other"), run.file(name));
    EXPECT_NE(run.attempt("--max-steps 6").code(), 0) << name;
    EXPECT_EQ(contents(folder.file("other")), "precious");
    fs::rename(kept, run.file(name));
  }
  run.complete("--max-steps 6");
}

// Of a run, and of a start that comes to none: its old logs are removed.
TEST_F(RunFolder, ALinkInPlaceOfItsLogsIsNotFollowed) {
  const ResumableRun run(flags("--max-steps 3"));
  const TemporaryFolder other;
  std::ofstream(other.file("rank-1.log")) << "precious";
  fs::create_directories(run.output());
  fs::create_directory_symlink(other.path(), run.file("logs"));
  for (const bool is_run : {false, true}) {
    for (const std::string ranks : {"1", "2"}) {
      const Ended refused = run.attempt("--max-steps 6 --nproc-per-node " + ranks).with_code(3);
      EXPECT_THAT(refused.err, HasSubstr(run.file("logs")));
      EXPECT_EQ(other.names(), std::vector<std::string>{"rank-1.log"});
      EXPECT_EQ(contents(other.file("rank-1.log")), "precious");
    }
    if (is_run) break;
    fs::remove(run.file("logs"));
    run.complete();
    fs::rename(run.file("logs"), run.file("logs.kept"));
    fs::create_directory_symlink(other.path(), run.file("logs"));
  }
}

TEST_F(RunFolder, ANameThatIsNotUtf8IsRefusedAtTheStart) {
  const TemporaryFolder folder;
  const std::string output = folder.file("run\xff");
  for (const std::string ranks : {"1", "2"}) {
    const Ended ended = train(flags("--nproc-per-node " + ranks + " --output " + output));
    EXPECT_EQ(ended.code(), 2);
    EXPECT_THAT(ended.err, HasSubstr("run\\xff"));
    EXPECT_FALSE(fs::exists(output));
  }
}

// Puts a value into the newest snapshot's state, and signs it again.
void forge(const ResumableRun& run, const std::string& key, const nlohmann::json& value) {
  const SnapshotChoice newest = run.newest();
  auto state = nlohmann::ordered_json::parse(contents(newest.path / "state.json"));
  state[key] = value;
  const std::string text = state.dump(1) + "\n";
  std::ofstream(newest.path / "state.json") << text;
  SnapshotManifest manifest = newest.manifest;
  for (SnapshotFile& file : manifest.files) {
    if (file.name != "state.json") continue;
    file.bytes = text.size();
    file.sha256 = sha256_of_file(newest.path / file.name);
  }
  std::ofstream(newest.path / "manifest.json") << to_json(manifest);
  ASSERT_TRUE(run.newest().refused.empty()) << "it is not found by its hashes";
}

TEST_F(RunFolder, AForgedSnapshotOfNoPossibleRunIsRefused) {
  const ResumableRun run(flags());
  run.complete();
  const std::vector<std::pair<std::string, nlohmann::json>> forgeries{
      {"replicas", 0}, {"step", std::int64_t{1} << 62}, {"epoch", 1'000'000'000}, {"step", 41}};
  const auto state = nlohmann::json::parse(contents(run.newest().path / "state.json"));
  for (const auto& [key, value] : forgeries) {
    forge(run, key, value);
    for (const std::string ranks : {"1", "2"}) {
      const Ended ended = run.attempt("--max-steps 50 --epochs 9 --nproc-per-node " + ranks);
      EXPECT_EQ(ended.code(), 3) << key << ended.err;
      EXPECT_THAT(
          ended.err, AllOf(HasSubstr("state.json: " + key + " must be"), Not(HasSubstr("signal"))));
    }
    forge(run, key, state[key]);
  }
}

}  // namespace
}  // namespace lockstep::testing
