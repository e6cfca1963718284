#include "lockstep/train/metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/file_size_limit.h"
#include "tests/train/temporary_folder.h"

namespace lockstep {
namespace {

MetricRecord record() {
  return {
      .elapsed = 1.5,
      .rank = 0,
      .restart = 0,
      .epoch = 2,
      .step = 300,
      .split = "train",
      .loss = 0.25,
      .lr = 0.001,
      .samples_per_s = 50000.0,
      .step_ms = 2.5,
      .data_ms = 0.5,
      .comm_ms = 0.25};
}

TEST(Metrics, LineHasExactlyTheKeysOfTheFormat) {
  EXPECT_EQ(
      json_line(record(), "2026-01-31T12:00:00.000Z"),
      R"({"v":1,"time":"2026-01-31T12:00:00.000Z","elapsed":1.5,"rank":0,"restart":0,"epoch":2,"step":300,)"
      R"("split":"train","loss":0.25,"accuracy":null,"accuracy5":null,"lr":0.001,"samples_per_s":50000.0,)"
      R"("step_ms":2.5,"data_ms":0.5,"comm_ms":0.25})");
}

TEST(Metrics, LossScaleIsThereForFloat16Only) {
  MetricRecord scaled = record();
  scaled.loss_scale = 65536;
  EXPECT_EQ(nlohmann::json::parse(json_line(scaled, ""))["loss_scale"], 65536);
}

TEST(Metrics, WhatJsonCannotHoldIsNullAndNamed) {
  MetricRecord bad = record();
  bad.loss = std::nan("");
  bad.samples_per_s = std::numeric_limits<double>::infinity();
  const auto line = nlohmann::json::parse(json_line(bad, ""));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["samples_per_s"].is_null());
  EXPECT_EQ(line["nonfinite"], (nlohmann::json{"loss", "samples_per_s"}));
  EXPECT_TRUE(line["accuracy"].is_null()) << "not measured is null too, but not nonfinite";
}

TEST(Metrics, LogAppendsWholeLines) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  MetricsLog log(path);
  for (int step = 1; step <= 3; ++step) {
    MetricRecord each = record();
    each.step = step;
    log.append(each);
  }
  std::ifstream file(path);
  std::string line;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(nlohmann::json::parse(line)["step"], step);
  }
  EXPECT_FALSE(std::getline(file, line));
}

TEST(Metrics, LogRefusesAnExistingFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  std::ofstream(path) << "older\n";
  EXPECT_THROW(MetricsLog{path}, std::system_error);
}

TEST(Metrics, FullDiskIsAnErrorOfTheSystem) {
  const testing::TemporaryFolder folder;
  MetricsLog log(folder.path() + "/metrics.jsonl");
  {
    const testing::FileSizeLimit partial(100);
    EXPECT_THROW(log.append(record()), std::system_error) << "a part of the line was taken";
    EXPECT_THROW(log.append(record()), std::system_error) << "nothing of it was taken";
  }
  EXPECT_NO_THROW(log.append(record()));
}

TEST(Metrics, TimeIsUtc) {
  const std::string now = utc_now();
  ASSERT_EQ(now.size(), 24u) << now;
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now.back(), 'Z');
}

}  // namespace
}  // namespace lockstep
