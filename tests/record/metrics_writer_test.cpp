#include "lockstep/record/metrics_writer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MetricRecord record() {
  return {.elapsed = 1.5,
      .rank = 0,
      .restart = 0,
      .epoch = 2,
      .step = 300,
      .split = "train",
      .scores = {.loss = 0.25},
      .lr = 0.001,
      .samples_per_s = 50000.0,
      .step_ms = 2.5,
      .data_ms = 0.5,
      .comm_ms = 0.25};
}

TEST(Metrics, LineHasExactlyTheKeysOfTheFormat) {
  EXPECT_EQ(json_line(record(), "2026-01-31T12:00:00.000Z"),
      R"({"v":1,"time":"2026-01-31T12:00:00.000Z","elapsed":1.5,"rank":0,"restart":0,"epoch":2,"step":300,)"
      R"("split":"train","loss":0.25,"accuracy":null,"accuracy5":null,"lr":0.001,"samples_per_s":50000.0,)"
      R"("step_ms":2.5,"data_ms":0.5,"comm_ms":0.25})");
}

TEST(Metrics, WhatJsonCannotHoldIsNullAndNamed) {
  MetricRecord bad = record();
  bad.scores.loss = std::nan("");
  bad.samples_per_s = std::numeric_limits<double>::infinity();
  const auto line = nlohmann::json::parse(json_line(bad, ""));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["samples_per_s"].is_null());
  EXPECT_EQ(line["nonfinite"], (nlohmann::json{"loss", "samples_per_s"}));
  EXPECT_TRUE(line["accuracy"].is_null()) << "not measured is null too, but not nonfinite";
}

std::vector<std::int64_t> steps_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(file, line);)
    steps.push_back(nlohmann::json::parse(line)["step"]);
  return steps;
}

TEST(Metrics, WhatAFullDiskDoesNotTakeComesLater) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.str() + "/metrics.jsonl";
  MetricsWriter log(folder.str());
  MetricRecord each = record();
  const auto append = [&](std::int64_t step) {
    each.step = step;
    log.append(each);
  };
  {
    const testing::FileSizeLimit partial(100);
    append(1);
    EXPECT_THAT(log.take_warning(), AllOf(HasSubstr(path), HasSubstr("File too large")));
    append(2);
    EXPECT_EQ(log.take_warning(), "") << "it was reported";
    EXPECT_THROW(log.flush(), std::system_error);
  }
  append(3);
  EXPECT_EQ(steps_in(path), (std::vector<std::int64_t>{1, 2, 3}));
  const testing::FileSizeLimit again(std::filesystem::file_size(path));
  append(4);
  EXPECT_NE(log.take_warning(), "") << "it is full again";
}

TEST(Metrics, FlushWritesWhatWaits) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.str() + "/metrics.jsonl";
  MetricsWriter log(folder.str());
  {
    const testing::FileSizeLimit none(0);
    log.append(record());
  }
  log.flush();
  EXPECT_EQ(steps_in(path).size(), 1U);
}

// What goes into a file without a name is lost.
TEST(Metrics, AFileThatHasLostItsNameTakesNothing) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.file("run"), path = run + "/metrics.jsonl";
  const auto lose_it = [&](const std::function<void()>& lose) {
    std::filesystem::remove_all(run);
    std::filesystem::create_directories(run);
    MetricsWriter log(run);
    log.append(record());
    lose();
    EXPECT_THROW(log.append(record()), std::system_error);
    EXPECT_THROW(log.flush(), std::system_error);
  };
  lose_it([&] { std::filesystem::remove_all(run); });
  lose_it([&] { std::filesystem::remove(path); });
  lose_it([&] { std::filesystem::rename(run, folder.file("moved")); });
  lose_it([&] {
    std::filesystem::remove(path);
    std::ofstream(path) << "another\n";
  });
}

TEST(Metrics, OnlyARegularFileIsGoneOnWith) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  std::ofstream(folder.file("other")) << "precious\n";
  std::filesystem::create_symlink(folder.file("other"), path);
  EXPECT_THROW(MetricsWriter{folder.str()}, DataError);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(MetricsWriter{folder.str()}, DataError);
  EXPECT_EQ(testing::contents(folder.file("other")), "precious\n");
}

TEST(Metrics, HalfALineOfAnEarlierStartSpoilsNone) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.str() + "/metrics.jsonl";
  std::ofstream(path) << json_line(record(), "") << "\n{\"v\":1,\"ti";
  MetricsWriter log(folder.str());
  EXPECT_EQ(log.restarts(), 1);
  log.append(record());
  std::ifstream file(path);
  std::string line;
  for (int number = 0; number < 3; ++number) ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(nlohmann::json::parse(line)["step"], 300);
}

TEST(Metrics, NumbersOfAProgramsOwnStandBesideTheOthers) {
  MetricRecord own = record();
  own.more = {{"perplexity", 12.5}, {"worst", std::nan("")}};
  const auto line = nlohmann::json::parse(json_line(own, ""));
  EXPECT_EQ(line["perplexity"], 12.5);
  EXPECT_TRUE(line["worst"].is_null());
  EXPECT_EQ(line["nonfinite"], nlohmann::json{"worst"});
  const auto scalars = scalars_of(own);
  EXPECT_THAT(
      scalars, ::testing::Contains(::testing::Field(&EventScalar::tag, "train/perplexity")));
  for (const char* taken : {"loss", "step", "v", "time", "nonfinite", "loss_scale", "\xff"}) {
    own.more = {{taken, 1}};
    EXPECT_THROW((void)json_line(own, ""), InvalidArgument) << taken;
  }
}

TEST(MetricsWriter, MakesTheFolderAndGoesOnWhereItWasStoppedBefore) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.file("runs/mine");
  for (int start = 0; start < 2; ++start) {
    MetricsWriter metrics(run, {.tensorboard = true, .steps = start});
    EXPECT_EQ(metrics.restarts(), start);
    MetricRecord each = record();
    each.step = start + 1;
    metrics.append(each);
    metrics.finish({.model = "mine", .epochs = {}, .steps = start + 1});
  }
  EXPECT_EQ(steps_in(run + "/metrics.jsonl"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(nlohmann::json::parse(testing::contents(run + "/summary.json"))["steps"], 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run + "/tensorboard"), {}), 2);
  EXPECT_THROW(MetricsWriter(run, {.goes_on = false}), std::system_error);
}

// The messages in the records of a file without their time, which is a field of nine bytes. A
// record that is cut short, or whose bytes are not those that were framed, ends the test.
std::vector<std::string> messages_in(const std::filesystem::path& path) {
  std::string bytes = testing::contents(path);
  std::vector<std::string> messages;
  while (!bytes.empty()) {
    const std::span<const std::uint8_t> all{
        reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
    const std::size_t size = little_endian(all.first(8)), record = 12 + size + 4;
    EXPECT_EQ(bytes.substr(0, record), event_record(std::string_view(bytes).substr(12, size)));
    messages.push_back(bytes.substr(12 + 9, size - 9));
    bytes.erase(0, record);
  }
  return messages;
}

std::string message(const std::string& record) { return record.substr(12 + 9, record.size() - 25); }

std::string message(const MetricRecord& record) {
  return message(scalars_event({0, record.step}, scalars_of(record)));
}

MetricRecord training(std::int64_t step) {
  return {.step = step, .split = "train", .scores = {.loss = 0.5}, .lr = 0.1};
}

class EventLogTest : public ::testing::Test {
 protected:
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    const std::string events = folder_.file("tensorboard");
    for (const auto& entry : std::filesystem::directory_iterator(events))
      found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }

  testing::TemporaryFolder folder_;
};

TEST(ScalarsOf, ARecordAreItsNumbersUnderNamesOfItsSplit) {
  const auto scalars = scalars_of({.step = 3,
      .split = "val-ema",
      .scores = {.loss = 0.5, .top5 = 0.75},
      .comm_ms = 2,
      .loss_scale = 8});
  std::vector<std::string> tags;
  for (const EventScalar& scalar : scalars) tags.push_back(scalar.tag);
  EXPECT_THAT(tags,
      ElementsAre("val-ema/loss", "val-ema/accuracy5", "val-ema/comm_ms", "val-ema/loss_scale"));
  EXPECT_EQ(scalars.at(1).value, 0.75);
}

TEST_F(EventLogTest, ARecordIsInTheFileAtOnce) {
  EventLog log(folder_.str(), 0);
  log.append(training(4));
  ASSERT_EQ(files().size(), 1U);
  EXPECT_THAT(
      messages_in(files()[0]), ElementsAre(message(version_event({})), message(training(4))));
}

TEST_F(EventLogTest, AStartThatGoesOnSaysFromWhichStepInANewerFile) {
  EventLog(folder_.str(), 0).append(training(9));
  EventLog(folder_.str(), 6).append(training(8));
  ASSERT_EQ(files().size(), 2U);
  EXPECT_EQ(messages_in(files()[0]).size(), 2U);
  EXPECT_THAT(messages_in(files()[1]), ElementsAre(message(version_event({})),
                                           message(restart_event({0, 7})), message(training(8))));
}

TEST_F(EventLogTest, ALostFileEndsTheEventsAndNotTheRun) {
  EventLog log(folder_.str(), 0);
  std::filesystem::remove_all(folder_.file("tensorboard"));
  log.append(training(1));
  EXPECT_THAT(log.take_warning(), HasSubstr("lockstep report --tensorboard"));
  log.append(training(2));
  log.flush();
  EXPECT_EQ(log.take_warning(), "");
}

TEST_F(EventLogTest, ADiskThatStaysFullIsAWarningAtTheEnd) {
  EventLog log(folder_.str(), 0);
  const testing::FileSizeLimit none(0);
  log.append(training(1));
  log.take_warning();
  log.flush();
  EXPECT_THAT(log.take_warning(), HasSubstr("no more events"));
}

TEST_F(EventLogTest, ALinkInPlaceOfTheFolderIsNotFollowed) {
  const testing::TemporaryFolder elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_.file("tensorboard"));
  EXPECT_THAT(testing::message_of<DataError>([&] { EventLog(folder_.str(), 0); }),
      HasSubstr("tensorboard"));
  EXPECT_THAT(elsewhere.names(), ElementsAre());
}

TEST_F(EventLogTest, ARunHasEventsOnlyWhereItsOptionsAskForThem) {
  MetricsWriter(folder_.str()).append(training(1));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("tensorboard")));
  MetricsWriter recorder(folder_.str(), {.tensorboard = true, .steps = 1});
  recorder.append(training(2));
  EXPECT_THAT(
      messages_in(files().at(0)), ElementsAre(message(version_event({})), message(training(2))));
  const testing::FileSizeLimit none(0);
  recorder.append(training(3));
  EXPECT_THAT(recorder.take_warning(), HasSubstr("metrics.jsonl"));
  EXPECT_THAT(recorder.take_warning(), HasSubstr("tfevents"));
  EXPECT_EQ(recorder.take_warning(), "");
}

}  // namespace
}  // namespace lockstep
