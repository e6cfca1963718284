#include "lockstep/bench/experiment/sample.h"

#include <cmath>

#include <gmock/gmock.h>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

Sample full_sample() {
  return {
      .study = "data-parallel",
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
  try {
    parse_sample(text, "f: line 3");
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
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
  const std::string start = R"({"v":1,"study":"s","cell":"c","round":1)";
  EXPECT_EQ(complaint("[]"), "f: line 3: is no JSON object");
  EXPECT_THAT(complaint("{"), HasSubstr("f: line 3: offset 1: is not JSON"));
  EXPECT_EQ(complaint(R"({"v":1,"study":"s","cell":"c"})"), "f: line 3: round must be there");
  EXPECT_EQ(
      complaint(R"({"v":1,"study":null,"cell":"c","round":1})"), "f: line 3: study must be there");
  EXPECT_EQ(
      complaint(R"({"v":2,"study":"s","cell":"c","round":1})"),
      "f: line 3: v is 2; this program reads 1");
  for (const char* round : {"0", "-1", "1.5", "2147483648", "\"1\"", "true"}) {
    EXPECT_EQ(
        complaint(concat(R"({"v":1,"study":"s","cell":"c","round":)", round, "}")),
        "f: line 3: round must be a whole number of at least 1");
  }
  EXPECT_EQ(complaint(start + R"(,"study":"s"})"), R"(f: line 3: a key comes twice: "study")");
  EXPECT_EQ(complaint(start + R"(,"values":[1]})"), "f: line 3: values must be an object");
  EXPECT_EQ(
      complaint(start + R"(,"values":{"a":"1"}})"), "f: line 3: values must be numbers or null");
  EXPECT_EQ(complaint(start + R"(,"settings":{"a":1}})"), "f: line 3: settings must hold texts");
  EXPECT_EQ(complaint(start + R"(,"command":"train"})"), "f: line 3: command must be a list");
  EXPECT_EQ(complaint(start + R"(,"command":[1]})"), "f: line 3: command must hold texts");
  EXPECT_EQ(complaint(start + R"(,"failure":1})"), "f: line 3: failure must be a text");
  EXPECT_EQ(
      complaint(start + R"(,"oversubscribed":1})"),
      "f: line 3: oversubscribed must be true or false");
  EXPECT_EQ(
      complaint(start + R"(,"code":-1})"), "f: line 3: code must be a whole number of at least 0");
  EXPECT_EQ(complaint(start + R"(,"seconds":"1"})"), "f: line 3: seconds must be numbers or null");
}

}  // namespace
}  // namespace lockstep::bench
