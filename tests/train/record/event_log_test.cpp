#include "lockstep/record/event_log.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST_F(EventLogTest, WhatAFullDiskDoesNotTakeComesLater) {
  EventLog log(folder_.str(), 0);
  {
    const testing::FileSizeLimit partial(50);
    log.append(training(1));
    EXPECT_THAT(log.take_warning(), HasSubstr("File too large"));
    log.append(training(2));
    EXPECT_EQ(log.take_warning(), "") << "it was reported";
  }
  log.append(training(3));
  EXPECT_EQ(log.take_warning(), "");
  EXPECT_THAT(messages_in(files()[0]), ElementsAre(message(version_event({})), message(training(1)),
                                           message(training(2)), message(training(3))));
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
  TrainOptions options;
  options.output = folder_.str();
  { RunRecorder(options, {"lockstep"}, "{}").append(training(1)); }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("tensorboard")));
  options.tensorboard = true;
  options.resume.kind = Resume::kAuto;
  RunRecorder recorder(options, {"lockstep"}, "{}", false, 1);
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
