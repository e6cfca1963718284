#include "bench/experiment/sample.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::complaint_of;
using lockstep::testing::contents;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;

Sample full_sample() {
  return {.study = "data-parallel",
      .cell = "small-b128-p2",
      .round = 3,
      .time = "2026-01-31T12:00:00.123Z",
      .settings = {{"batch_size", "128"}, {"model", "mnist-small"}},
      .command = {"train", "--model", "mnist \"small\"\n"},
      .places = 2,
      .oversubscribed = true,
      .values = {{"first_epoch_seconds", 0.1}, {"train_loss", 1e-300}},
      .seconds = 12.5,
      .calibration_seconds = 0.02,
      .other_share = 0.25,
      .code = 137,
      .failure = "was killed",
      .not_measurable = "needs root"};
}

/// Says what is wrong with a line; "" if nothing is.
std::string complaint(const std::string& text) {
  return complaint_of<DataError>([&] { parse_sample(text, "f: line 3"); });
}

TEST(SampleJson, ComesBackAsItWas) {
  EXPECT_EQ(parse_sample(to_json(full_sample()), "f"), full_sample());
  const Sample empty{.study = "s", .cell = "c", .round = 1};
  EXPECT_EQ(parse_sample(to_json(empty), "f"), empty);
  EXPECT_TRUE(empty.worked());
  EXPECT_FALSE(full_sample().worked());
}

TEST(SampleJson, IsOneLineThatBeginsWithItsVersion) {
  const std::string line = to_json(full_sample());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(
      line.starts_with(R"({"v":1,"study":"data-parallel","cell":"small-b128-p2","round":3)"))
      << line;
  EXPECT_THAT(line, HasSubstr(R"("values":{"first_epoch_seconds":0.1,"train_loss":1e-300})"));
}

TEST(SampleJson, WhatIsNotFiniteIsNull) {
  Sample sample = full_sample();
  sample.values["train_loss"] = HUGE_VAL;
  sample.other_share = std::nan("");
  const std::string line = to_json(sample);
  EXPECT_THAT(line, HasSubstr(R"("train_loss":null)"));
  const Sample read = parse_sample(line, "f");
  EXPECT_TRUE(std::isnan(read.values.at("train_loss")));
  EXPECT_TRUE(std::isnan(read.other_share));
}

TEST(SampleJson, BytesThatAreNoTextAreReplaced) {
  Sample sample = full_sample();
  sample.failure = "torn \xc3";
  EXPECT_EQ(parse_sample(to_json(sample), "f").failure, "torn \xef\xbf\xbd");
}

TEST(SampleJson, OverlooksKeysOfLaterVersions) {
  EXPECT_EQ(complaint(R"({"v":1,"study":"s","cell":"c","round":1,"new":{"deep":[1]}})"), "");
}

TEST(SampleJson, RefusesWhatIsNotAsTheFormatSays) {
  const auto expect = [](const std::string& text, const std::string& message) {
    EXPECT_THAT(complaint(text), ::testing::StartsWith("f: line 3: " + message)) << text;
  };
  expect("[]", "it must be a JSON object");
  expect("{", "offset 1: is not JSON");
  expect(R"({"v":1,"study":"s","cell":"c"})", "round must be there");
  expect(R"({"v":1,"study":null,"cell":"c","round":1})", "study must be a text");
  expect(R"({"v":2,"study":"s","cell":"c","round":1})", "v is 2; this program reads 1");
  for (const char* round : {"0", "-1", "1.5", "2147483648", "\"1\"", "true"}) {
    expect(concat(R"({"v":1,"study":"s","cell":"c","round":)", round, "}"),
        "round must be a whole number from 1 to 2147483647");
  }
  const std::pair<const char*, const char*> cases[] = {
      {R"("study":"s")", R"(a key comes twice: "study")"},
      {R"("values":[1])", "values must be a JSON object"},
      {R"("values":{"a":"1"})", "values.a must be a finite number"},
      {R"("settings":{"a":1})", "settings.a must be a text"},
      {R"("command":"train")", "command must be a list of texts"},
      {R"("command":[1])", "command must be a list of texts"},
      {R"("failure":1)", "failure must be a text"},
      {R"("oversubscribed":1)", "oversubscribed must be true or false"},
      {R"("code":-1)", "code must be a whole number from 0"},
      {R"("seconds":"1")", "seconds must be a finite number"}};
  for (const auto& [field, message] : cases) {
    expect(concat(R"({"v":1,"study":"s","cell":"c","round":1,)", field, "}"), message);
  }
}

Sample sample_of(const std::string& cell, int round, double value = 1) {
  return {.study = "s", .cell = cell, .round = round, .values = {{"x", value}}};
}

std::string text_of_samples(int count) {
  std::string text;
  for (int round = 1; round <= count; ++round) text += to_json(sample_of("c", round)) + "\n";
  return text;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(SampleLog, KeepsWhatIsAppended) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  {
    SampleLog log(path);
    EXPECT_THAT(log.samples(), IsEmpty());
    log.append(sample_of("a", 1));
    log.append(sample_of("b", 1));
    EXPECT_EQ(read_samples(path).samples, log.samples());
  }
  SampleLog log(path);
  EXPECT_EQ(log.torn(), "");
  log.append(sample_of("a", 2));
  EXPECT_THAT(names(log.samples()), ElementsAre("a-1", "b-1", "a-2"));
  EXPECT_THAT(names(read_samples(path).samples), ElementsAre("a-1", "b-1", "a-2"));
}

TEST(SampleLog, HoldsWhatAReaderFinds) {
  const TemporaryFolder folder;
  SampleLog log(folder.path() / "samples.jsonl");
  Sample sample = sample_of("a", 1);
  sample.failure = "\xff";
  log.append(sample);
  EXPECT_EQ(log.samples().front().failure, "\xef\xbf\xbd");
}

// Wherever a kill tears the file, the whole lines are there, the rest is cut off, and it goes on.
TEST(SampleLog, CutsATornLineOffWhereverItIsTorn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const std::string text = text_of_samples(3);
  const std::size_t line = text.size() / 3;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    write(path, text.substr(0, size));
    SampleLog log(path);
    const bool lacks_newline_only = size % line == line - 1;
    const std::size_t whole = size / line + (lacks_newline_only ? 1 : 0);
    ASSERT_EQ(log.samples().size(), whole) << size;
    EXPECT_EQ(log.torn().empty(), size % line == 0 || lacks_newline_only) << size;
    log.append(sample_of("d", 1));
    ASSERT_EQ(contents(path), text.substr(0, whole * line) + to_json(sample_of("d", 1)) + "\n");
  }
}

TEST(SampleLog, NamesTheLineThatWasTorn) {
  const SampleFile file = parse_samples(text_of_samples(2) + "{\"v\":1,\n", "s.jsonl");
  EXPECT_EQ(file.torn, "s.jsonl: line 3: incomplete because its writer died; skipped");
  EXPECT_EQ(file.samples.size(), 2U);
  EXPECT_EQ(file.whole, text_of_samples(2).size());
}

TEST(SampleLog, RefusesDamageThatNoKillMakes) {
  const auto complaint = [](const std::string& text) {
    return complaint_of<DataError>([&] { parse_samples(text, "s.jsonl"); });
  };
  const std::string good = text_of_samples(1);
  EXPECT_THAT(complaint("{\n" + good), HasSubstr("s.jsonl: line 1: offset"));
  EXPECT_THAT(complaint(good + "\n" + good), HasSubstr("s.jsonl: line 2: "));
  EXPECT_THAT(complaint(good + "{\"v\":2}"), HasSubstr("s.jsonl: line 2: ")) << "whole, but wrong";
  EXPECT_THAT(complaint(std::string(2 << 20, ' ')),
      HasSubstr("s.jsonl: line 1: 2097152 bytes are too many"));
  const TemporaryFolder folder;
  EXPECT_THROW(read_samples(folder.path() / "none.jsonl"), DataError);
  EXPECT_THROW(SampleLog(folder.path()), std::system_error) << "a folder";
}

TEST(SampleLog, HasOneWriter) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const SampleLog log(path);
  EXPECT_THROW(SampleLog{path}, InvalidArgument);
  EXPECT_NO_THROW(read_samples(path)) << "a reader may look";
}

// In a child process, as the limit on files cannot be raised again.
TEST(SampleLog, AFullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    SampleLog log(path);
    log.append(sample_of("a", 1));
    const rlimit limit{contents(path).size() + 20, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      log.append(sample_of("a", 2));
    } catch (const std::system_error&) {
      ::_exit(log.samples().size() == 1 ? 7 : 8);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(contents(path), to_json(sample_of("a", 1)) + "\n");
}

TEST(Latest, KeepsTheLastOfARound) {
  Sample other = sample_of("a", 1, 9);
  other.study = "t";
  const auto kept = latest({sample_of("a", 1, 1), other, sample_of("b", 1), sample_of("a", 1, 2)});
  EXPECT_THAT(names(kept), ElementsAre("a-1", "b-1", "a-1"));
  EXPECT_EQ(kept[0], other);
  EXPECT_EQ(kept[2].values.at("x"), 2);
}

}  // namespace
}  // namespace lockstep::bench
