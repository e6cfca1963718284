#include "lockstep/train/record/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms/augment.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MeterReading reading(double seconds, double data_seconds) {
  return {.steps = 10, .samples = 640, .seconds = seconds, .data_seconds = data_seconds};
}

TEST(SlowLoaderWarning, ComesFromAFifthOfTheStepOn) {
  EXPECT_FALSE(slow_loader_warning(reading(1, 0.19), 2));
  ASSERT_TRUE(slow_loader_warning(reading(1, 0.2), 2));
  EXPECT_EQ(*slow_loader_warning(reading(2, 0.86), 3),
      "steps wait for samples: 43 % of their time (data_ms 86), with --workers 3; more of them "
      "help "
      "if cores are idle, else a cheaper --augment or smaller images");
}

TEST(SlowLoaderWarning, StaysAwayFromWaitsThatNobodyFeels) {
  EXPECT_FALSE(slow_loader_warning(reading(0.02, 0.009), 0));
  EXPECT_TRUE(slow_loader_warning(reading(0.02, 0.011), 0));
  EXPECT_FALSE(slow_loader_warning(reading(0, 0), 0));
}

std::shared_ptr<data::FolderSamples> open(const testing::TemporaryFolder& root) {
  return std::make_shared<data::FolderSamples>(data::ImageFolder(root.path()),
      data::make_eval_transform({8, 8}), data::OnBadImage::kReplace);
}

void read(const data::SamplesPointer& set, std::vector<std::int64_t> indices) {
  for (auto& batch : Loader(set, std::move(indices), 1)) ASSERT_TRUE(batch.input().defined());
}

// Files 1 and 2 of four are bad.
void make_files(const testing::TemporaryFolder& root) {
  for (const char* name : {"a/0.png", "a/1.png", "b/2.png", "b/3.png"})
    testing::write_flat_png(root, name, 100);
  for (const char* name : {"a/1.png", "b/2.png"}) testing::write_no_image(root, name);
}

TEST(BadImageWatch, TellsEachFileOnce) {
  const testing::TemporaryFolder root;
  make_files(root);
  const auto set = open(root);
  BadImageWatch watch({set});
  EXPECT_THAT(watch.news(), ElementsAre());
  read(set, {0, 1});
  // Number 2 was met while 1 was replaced.
  EXPECT_THAT(watch.news(),
      ElementsAre(AllOf(HasSubstr("skipped: "), HasSubstr("a/1.png")), HasSubstr("b/2.png")));
  read(set, {0, 1, 2, 3});
  EXPECT_THAT(watch.news(), ElementsAre());
}

TEST(BadImageWatch, CountsAFileOnceThatSeveralRanksMet) {
  const testing::TemporaryFolder root;
  make_files(root);
  run_ranks(3, [&](const ProcessGroup& world) {
    const auto set = open(root);
    const auto other = open(root);
    const BadImageWatch watch({set, other});
    if (world.rank() != 2) read(set, {2});
    if (world.rank() == 0) read(set, {1});
    if (world.rank() == 1) read(other, {2});
    EXPECT_EQ(watch.count(world), 3);
  });
}

}  // namespace
}  // namespace lockstep
