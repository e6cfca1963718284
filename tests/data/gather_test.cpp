#include <gtest/gtest.h>

#include "tests/data/gathered.h"

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {
namespace {

InMemoryImages images_of(std::int64_t channels) {
  return mock({.size = 50,
      .shape = {.channels = channels, .height = 7, .width = 9},
      .classes = 10,
      .seed = 3});
}

/// Does what a Python user would: index the whole set, convert, divide.
torch::Tensor expected(const InMemoryImages& images, const std::vector<std::int64_t>& indices) {
  const auto& shape = images.shape();
  const auto all = torch::from_blob(const_cast<std::uint8_t*>(images.pixels(0)),
      {50, shape.height, shape.width, shape.channels}, torch::kByte);
  const auto chosen = all.index_select(0, torch::tensor(indices).remainder(50));
  return chosen.permute({0, 3, 1, 2}).to(torch::kFloat).div(255);
}

TEST(Gather, EqualsIndexSelectAndDivision) {
  const std::vector<std::int64_t> indices{3, 49, 0, 3, 17, 2, 30};
  for (const std::int64_t channels : {1, 3, 4}) {
    const auto images = images_of(channels);
    const auto got = gather_images(images, indices, PixelScale(channels));
    EXPECT_TRUE(torch::allclose(got, expected(images, indices), 0, 1e-7)) << channels;
    const auto half = gather_images(images, indices, PixelScale(channels), torch::kBFloat16);
    EXPECT_TRUE(torch::equal(half, expected(images, indices).to(torch::kBFloat16))) << channels;
  }
}

TEST(Gather, ReachesEveryImageOfARepeatedSet) {
  const auto images = images_of(1).repeated(3);
  std::vector<std::int64_t> indices(150);
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::int64_t>(i * 7 % 150);
  const auto got = gather_images(images, indices, PixelScale(1));
  EXPECT_TRUE(torch::allclose(got, expected(images, indices), 0, 1e-7));
  const auto labels = gather_labels(images, indices);
  ASSERT_EQ(labels.scalar_type(), torch::kLong);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(labels.data_ptr<std::int64_t>()[i], images.label(indices[i] % 50));
  }
}

TEST(Gather, SaysChannelsLastInItsStrides) {
  const std::vector<std::int64_t> indices{0, 1};
  EXPECT_EQ(gather_images(images_of(1), indices, PixelScale(1)).strides(),
      torch::IntArrayRef({63, 1, 9, 1}));
  EXPECT_EQ(gather_images(images_of(3), indices, PixelScale(3)).strides(),
      torch::IntArrayRef({189, 1, 27, 3}));
}

TEST(Gather, OfOneChannelMakesAConvolutionAnswerChannelsLast) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto batch =
        gather_images(images_of(1), std::vector<std::int64_t>(8, 1), PixelScale(1), dtype);
    auto weight =
        torch::empty_strided({32, 1, 3, 3}, {9, 1, 3, 1}, torch::TensorOptions().dtype(dtype));
    weight.fill_(0.1);
    const auto answer = torch::conv2d(batch, weight, {}, 1, 1);
    EXPECT_TRUE(answer.is_contiguous(torch::MemoryFormat::ChannelsLast)) << answer.strides();
    EXPECT_FALSE(answer.is_contiguous()) << answer.strides();
  }
}

TEST(Gather, IntoUsesTheMemoryThatItIsGiven) {
  const auto images = images_of(3);
  const std::vector<std::int64_t> indices{4, 5};
  const auto out = empty_images(2, images.shape(), torch::kFloat, true);
  const void* memory = out.data_ptr();
  gather_images_into(out, images, indices, PixelScale(3));
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_TRUE(torch::allclose(out, expected(images, indices), 0, 1e-7));
}

TEST(Gather, GivesEachChannelAPlaneWhereTheOutputHasThem) {
  const std::vector<std::int64_t> indices{4, 5, 4};
  for (const std::int64_t channels : {1, 3, 4}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
      const auto images = images_of(channels);
      const auto out = empty_images(3, images.shape(), dtype, false);
      ASSERT_EQ(out.strides(), torch::empty({3, channels, 7, 9}).strides());
      gather_images_into(out, images, indices, PixelScale(channels));
      const auto last = gather_images(images, indices, PixelScale(channels), dtype);
      EXPECT_TRUE(torch::equal(out, last)) << channels << dtype;
    }
  }
}

TEST(Gather, OfNothingIsEmpty) {
  EXPECT_EQ(
      gather_images(images_of(1), {}, PixelScale(1)).sizes(), torch::IntArrayRef({0, 1, 7, 9}));
  EXPECT_EQ(gather_labels(images_of(1), {}).numel(), 0);
}

TEST(Gather, RefusesIndicesOutOfRange) {
  const auto images = images_of(1);
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{50}, std::int64_t{1} << 62}) {
    const std::vector<std::int64_t> indices{0, index};
    EXPECT_THROW(gather_images(images, indices, PixelScale(1)), InvalidArgument) << index;
    EXPECT_THROW(gather_labels(images, indices), InvalidArgument) << index;
  }
}

TEST(Gather, RefusesOutputsOfAnotherForm) {
  const auto images = images_of(1);
  const std::vector<std::int64_t> indices{0, 1};
  const PixelScale scale(1);
  const auto refuses = [&](const torch::Tensor& out) {
    EXPECT_THROW(gather_images_into(out, images, indices, scale), InvalidArgument) << out.sizes();
  };
  refuses(torch::Tensor());
  refuses(torch::empty({2, 1, 9, 7}).transpose(2, 3));
  refuses(empty_images(3, images.shape(), torch::kFloat, true));
  refuses(empty_images(2, images_of(3).shape(), torch::kFloat, true));
  refuses(empty_images(2, images.shape(), torch::kHalf, true));
  EXPECT_THROW(gather_images(images, indices, PixelScale(3)), InvalidArgument);
  EXPECT_THROW(
      gather_labels_into(torch::empty({3}, torch::kLong), images, indices), InvalidArgument);
  EXPECT_THROW(
      gather_labels_into(torch::empty({2}, torch::kInt), images, indices), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
