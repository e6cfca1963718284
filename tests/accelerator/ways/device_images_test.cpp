// Batches that a device gathers, against those that the host does.

#include "lockstep/data/device_images.h"

#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/accelerator/runtime.h"

#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/device/accelerator.h"

namespace lockstep::emulated {
namespace {

using data::RepeatedSamples;
using data::SamplesPointer;
using data::SampleSubset;
using data::StoredSamples;

const torch::Device kSecondDevice(c10::kPrivateUse1, 1);

std::shared_ptr<const StoredSamples> colours(std::int64_t channels) {
  data::Normalization normalization;
  for (std::int64_t c = 0; c < channels; ++c) {
    normalization.mean.push_back(0.3F + 0.1F * static_cast<float>(c));
    normalization.std.push_back(0.2F + 0.1F * static_cast<float>(c));
  }
  return std::make_shared<const StoredSamples>(
      data::mock({.size = 40,
          .shape = {.channels = channels, .height = 5, .width = 3},
          .classes = 7,
          .seed = 1}),
      normalization);
}

std::vector<std::int64_t> all_of(const SamplesPointer& samples) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples->size()));
  std::iota(indices.rbegin(), indices.rend(), 0);
  return indices;
}

void expect_the_hosts_batches(const SamplesPointer& samples, LoaderOptions options) {
  data::ResidentSets sets(kSecondDevice);
  const Loader host(samples, all_of(samples), 8, options);
  options.resident = sets.of(*samples);
  ASSERT_NE(options.resident, nullptr);
  options.workers = 2;
  const Loader device(samples, all_of(samples), 8, options);
  auto expected = host.begin();
  for (auto& batch : device) {
    EXPECT_EQ(batch.input().device(), kSecondDevice);
    EXPECT_EQ(batch.input().strides(), expected->input().strides());
    EXPECT_TRUE(batch.input().cpu().equal(expected->input()));
    EXPECT_TRUE(batch.target().cpu().equal(expected->target()));
    ++expected;
  }
  EXPECT_EQ(expected, std::default_sentinel);
}

class DeviceImagesTest : public ::testing::Test {
 protected:
  void SetUp() override { install(); }
};

TEST_F(DeviceImagesTest, GiveTheHostsBatchesToTheBit) {
  for (const std::int64_t channels : {1, 3})
    for (const auto type : {torch::kFloat, torch::kBFloat16})
      for (const bool last : {false, true})
        expect_the_hosts_batches(colours(channels), {.dtype = type, .channels_last = last});
}

TEST_F(DeviceImagesTest, GivePartsAndRepetitions) {
  const auto part =
      std::make_shared<SampleSubset>(colours(3), std::vector<std::int64_t>{39, 0, 7, 7, 20});
  expect_the_hosts_batches(part, {});
  expect_the_hosts_batches(std::make_shared<RepeatedSamples>(part, 3), {});
}

TEST_F(DeviceImagesTest, SendTheIndicesAloneAndWaitForNothing) {
  const auto samples = colours(1);
  data::ResidentSets sets(kSecondDevice);
  const Loader loader(samples, all_of(samples), 8, {.resident = sets.of(*samples)});
  Runtime::get().take_counts();
  auto batch = loader.begin();
  ++batch;
  const Counts counts = Runtime::get().take_counts();
  EXPECT_EQ(counts.copies_to_device, 2);
  EXPECT_EQ(counts.copies_to_host, 0);
  EXPECT_EQ(counts.host_waits, 0);
}

// The copies are late: each must find its own batch in the pinned memory.
TEST_F(DeviceImagesTest, PinnedBatchesAreNotFilledAgainBeforeTheyAreCopied) {
  const auto samples = colours(1);
  const Loader plain(samples, all_of(samples), 8);
  for (const int workers : {0, 1}) {
    const Loader pinned(
        samples, all_of(samples), 8, LoaderOptions{.workers = workers, .pinned = true});
    DeviceCopier copier(kSecondDevice);
    std::vector<torch::Tensor> copies;
    for (auto& batch : pinned) copies.push_back(copier(batch.input()));
    auto expected = plain.begin();
    for (const torch::Tensor& copy : copies) {
      EXPECT_TRUE(copy.cpu().equal(expected->input()));
      ++expected;
    }
  }
}

TEST_F(DeviceImagesTest, AreThereOnceAndOnlyForMereCopies) {
  const auto samples = colours(1);
  const auto part = std::make_shared<SampleSubset>(samples, std::vector<std::int64_t>{1, 2});
  data::ResidentSets sets(kSecondDevice), on_cpu(torch::kCPU);
  EXPECT_EQ(sets.of(*samples), sets.of(*part));
  EXPECT_EQ(on_cpu.of(*samples), nullptr);
  EXPECT_THROW(sets.of(*samples)->batch(std::vector<std::int64_t>{40}, torch::kFloat, true),
      InvalidArgument);
}

}  // namespace
}  // namespace lockstep::emulated
