#include "lockstep/train/record/run_directory.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/run_lock.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RunDirectory, IsMadeWithItsParents) {
  const testing::TemporaryFolder folder;
  make_run_directory(folder.file("a/b"));
  EXPECT_TRUE(std::filesystem::is_directory(folder.file("a/b/logs")));
}

TEST(RunDirectory, TakesAnEmptyFolderAndOneWithLogsOnly) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.str() + "/logs");
  EXPECT_NO_THROW(make_run_directory(folder.str()));
}

TEST(RunDirectory, NeverTouchesAnotherRun) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.str() + "/metrics.jsonl") << "precious\n";
  const auto message =
      testing::message_of<InvalidArgument>([&] { make_run_directory(folder.str()); });
  EXPECT_THAT(message, ::testing::HasSubstr("metrics.jsonl"));
  EXPECT_THAT(message, ::testing::HasSubstr("name a new or empty folder"));
  EXPECT_EQ(contents(folder.str() + "/metrics.jsonl"), "precious\n");
}

TEST(RunDirectory, GoesOnWithARunIfAsked) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.str() + "/run", snapshot = run + "/snapshots/step-00000004";
  std::filesystem::create_directories(snapshot);
  const auto takes = [&run](const ResumeSettings& resume) {
    try {
      check_run_directory(run, resume);
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  };
  EXPECT_FALSE(takes({.kind = Resume::kNever}));
  EXPECT_TRUE(takes({.kind = Resume::kAuto}));
  EXPECT_TRUE(takes({.kind = Resume::kFrom, .from = run}));
  EXPECT_TRUE(takes({.kind = Resume::kFrom, .from = run + "/../run/"}));
  EXPECT_TRUE(takes({.kind = Resume::kFrom, .from = snapshot}));
  EXPECT_FALSE(takes({.kind = Resume::kFrom, .from = folder.str() + "/other"}));
  EXPECT_TRUE(takes({.kind = Resume::kFrom, .from = "/other", .again = true}));
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(RunDirectory, OverwriteTakesARunAndNothingElse) {
  const testing::TemporaryFolder folder;
  const ResumeSettings overwrite{.overwrite = true};
  write(folder.file("thesis.tex"), "precious\n");
  EXPECT_THROW(check_run_directory(folder.str(), overwrite), InvalidArgument);
  write(folder.file("config.toml"), "");
  EXPECT_NO_THROW(check_run_directory(folder.str(), overwrite));
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { check_run_directory(folder.str()); }),
      ::testing::HasSubstr("--overwrite"));
}

TEST(RunDirectory, RemovingARunLeavesWhatItHasNotMade) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"config.toml", "command.txt", "env.json", "metrics.jsonl",
           "summary.json", "model.safetensors", "model-ema.safetensors", "best.safetensors",
           "report.html", "tensorboard/events.out.tfevents.1700000000.lockstep",
           "snapshots/step-00000004/state.json", "snapshots/LATEST", "snapshots/best",
           "snapshots/.step-00000005.abc123/state.json"})
    write(folder.file(name), "old");
  for (const char* name : {"thesis.tex", "logs/rank-1.log"}) write(folder.file(name), "precious");
  make_run_directory(folder.str(), {.overwrite = true}, true);
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("logs", "thesis.tex"));
  EXPECT_EQ(contents(folder.file("logs/rank-1.log")), "precious");
  const std::string theirs = "tensorboard/events.out.tfevents.1700000000.host.1.0";
  for (const std::string& name : {std::string("snapshots/mine.txt"), theirs})
    write(folder.file(name), "precious");
  remove_run(folder.str());
  EXPECT_EQ(contents(folder.file("snapshots/mine.txt")), "precious");
  EXPECT_EQ(contents(folder.file(theirs)), "precious");
}

TEST(RunDirectory, WhatAKilledStartLeftIsNoObstacleAndGoes) {
  const testing::TemporaryFolder folder;
  for (const char* name : {".lock", ".config.toml.123.part", ".best.safetensors.7.part"})
    write(folder.file(name), "half");
  make_run_directory(folder.str(), {.kind = Resume::kAuto});
  EXPECT_THAT(folder.names(), ::testing::ElementsAre(".lock", "logs"));
  write(folder.file(".thesis.tex.1.part"), "precious");
  EXPECT_THROW(make_run_directory(folder.str()), InvalidArgument);
}

TEST(RunDirectory, ANameThatIsNotUtf8IsRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([&] { check_run_directory(folder.str() + "/a\xff"); }),
      ::testing::HasSubstr("/a\\xff"));
  EXPECT_NO_THROW(check_run_directory(folder.str() + "/größe"));
}

TEST(RunDirectory, OtherFilesAreNotARun) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.str() + "/thesis.tex") << "precious\n";
  EXPECT_THROW(check_run_directory(folder.str(), {.kind = Resume::kAuto}), InvalidArgument);
}

TEST(RunDirectory, AFileInItsPlaceIsRefused) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.str() + "/file") << "x";
  EXPECT_THROW(make_run_directory(folder.str() + "/file"), InvalidArgument);
  EXPECT_THROW(make_run_directory(folder.str() + "/file/below"), std::system_error);
}

class RunRecorderTest : public ::testing::Test {
 protected:
  RunRecorderTest() { options_.output = folder_.file("run"); }
  RunRecorder recorder() const { return {options_, {"lockstep"}, "{}"}; }
  std::string text_of(const std::string& name) const {
    return contents(options_.output + "/" + name);
  }

  testing::TemporaryFolder folder_;
  TrainOptions options_;
};

TEST_F(RunRecorderTest, FilesAreThereFromTheStartAndAtTheEnd) {
  options_.tensorboard = true;
  RunRecorder recorder(options_, {"lockstep", "train", "--model", "a b"}, "{}");
  EXPECT_TRUE(std::filesystem::exists(recorder.file("tensorboard")));
  recorder.append({.split = "train"});
  EXPECT_EQ(text_of("config.toml"), config_toml(options_));
  EXPECT_EQ(text_of("command.txt"), "lockstep train --model 'a b'\n");
  EXPECT_EQ(text_of("env.json"), "{}\n");
  EXPECT_THAT(text_of("metrics.jsonl"), ::testing::EndsWith("}\n"));
  EXPECT_FALSE(std::filesystem::exists(options_.output + "/summary.json"));
  recorder.finish({});
  EXPECT_EQ(text_of("summary.json"), to_json(RunSummary()) + "\n");
}

TEST_F(RunRecorderTest, FollowsNoLinks) {
  options_.resume.kind = Resume::kAuto;
  write(folder_.file("precious"), "precious");
  for (const char* name : {"config.toml", ".config.toml.new", "summary.json"}) {
    std::filesystem::create_directories(options_.output);
    std::filesystem::create_symlink(folder_.file("precious"), options_.output + "/" + name);
  }
  recorder().finish({});
  EXPECT_FALSE(std::filesystem::is_symlink(options_.output + "/config.toml"));
  EXPECT_EQ(contents(folder_.file("precious")), "precious");
  std::filesystem::remove(options_.output + "/metrics.jsonl");
  std::filesystem::create_symlink(folder_.file("precious"), options_.output + "/metrics.jsonl");
  EXPECT_THAT(testing::message_of<DataError>([&] { recorder(); }),
      ::testing::HasSubstr("metrics.jsonl: is a link"));
  EXPECT_EQ(contents(folder_.file("precious")), "precious");
}

TEST_F(RunRecorderTest, GoesOnInTheFilesOfTheStartBefore) {
  {
    RunRecorder first = recorder();
    EXPECT_EQ(first.restarts(), 0);
    first.append({.step = 1, .split = "train"});
  }
  options_.resume.kind = Resume::kAuto;
  for (int start = 1; start < 3; ++start) {
    RunRecorder later = recorder();
    EXPECT_EQ(later.restarts(), start);
    later.append({.step = 1 + start, .split = "train"});
  }
  const std::string text = text_of("metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, ::testing::HasSubstr("\"restart\":0,\"epoch\":0,\"step\":1,"));
  EXPECT_THAT(text, ::testing::HasSubstr("\"restart\":2,\"epoch\":0,\"step\":3,"));
}

// Of a rank that died before it wrote them.
TEST_F(RunRecorderTest, AppendsWhatTheStartBeforeHasNotWritten) {
  recorder().append({.step = 4, .split = "train"});
  options_.resume.kind = Resume::kAuto;
  RunRecorder later = recorder();
  later.append_missing(
      {{.step = 4, .split = "train"}, {.step = 4, .split = "val"}, {.step = 8, .split = "train"}});
  const std::string text = text_of("metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, ::testing::HasSubstr("\"restart\":1,\"epoch\":0,\"step\":4,\"split\":\"val\""));
  EXPECT_THAT(
      text, ::testing::HasSubstr("\"restart\":1,\"epoch\":0,\"step\":8,\"split\":\"train\""));
}

TEST_F(RunRecorderTest, HalfALineOfTheStartBeforeSpoilsNone) {
  recorder().append({.step = 1, .split = "train"});
  const std::string path = options_.output + "/metrics.jsonl";
  std::ofstream(path, std::ios::app) << "{\"v\":1,\"resta";
  options_.resume.kind = Resume::kAuto;
  RunRecorder later = recorder();
  EXPECT_EQ(later.restarts(), 1);
  later.append({.step = 2, .split = "train"});
  EXPECT_THAT(contents(path), ::testing::HasSubstr("\"resta\n{\"v\":1,"));
}

TEST(ConfigToml, QuotesTextAndKeepsNumbers) {
  TrainOptions options;
  options.data = {.name = "mnist", .directory = "/a \"b\"\\c\n"};
  options.limits = {.steps = 100, .seconds = 5400.0};
  options.optimizer.lr = 1;
  options.optimizer.weight_decay = 1e-5;
  const std::string text = config_toml(options);
  EXPECT_THAT(text, ::testing::HasSubstr("data = \"mnist:/a \\\"b\\\"\\\\c\\n\"\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("max-steps = 100\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("lr = 1.0\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("weight-decay = 1e-05\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("max-time = \"5400s\"\n"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("epochs")));
}

TEST(ShellText, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_text({"lockstep", "train", "--lr=0.1"}), "lockstep train --lr=0.1");
  EXPECT_EQ(shell_text({"a b", "", "it's", "$x"}), R"('a b' '' 'it'\''s' '$x')");
}

TEST(RunLock, WaitsForAnOwnerThatGoes) {
  const testing::TemporaryFolder folder;
  auto first = std::make_unique<const RunLock>(folder.str());
  EXPECT_THROW(RunLock(folder.str(), kRunLock, std::chrono::milliseconds(200)), InvalidArgument);
  std::thread owner([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first.reset();
  });
  EXPECT_NO_THROW(RunLock(folder.str(), kRunLock, std::chrono::minutes(1)));
  owner.join();
}

}  // namespace
}  // namespace lockstep
