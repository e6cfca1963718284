#include "bench/experiment/sample.h"

#include <cmath>
#include <gmock/gmock.h>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace lockstep::bench
