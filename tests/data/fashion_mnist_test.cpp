#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "lockstep/data/dataset.h"

namespace lockstep::data {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(const InMemoryImages& images) {
  const auto pixels = images.size() * images.shape().elements();
  double sum = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < pixels; ++i) {
    const double value = images.pixels(0)[i] / 255.0;
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(pixels);
  return {
      .mean = mean, .deviation = std::sqrt(squares / static_cast<double>(pixels) - mean * mean)};
}

void expect_even_classes(const InMemoryImages& images) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t i = 0; i < images.size(); ++i) ++counts[images.label(i)];
  EXPECT_EQ(counts.size(), 10U);
  for (const auto& [label, count] : counts) EXPECT_EQ(count, images.size() / 10) << label;
}

TEST(FashionMnist, IsTheSetThatItsAuthorsDescribe) {
  const auto train = fashion_mnist();
  EXPECT_EQ(train.size(), 60'000);
  EXPECT_EQ(train.shape(), (ImageShape{.channels = 1, .height = 28, .width = 28}));
  expect_even_classes(train);
  const auto [mean, deviation] = moments(train);
  EXPECT_NEAR(mean, 0.2860, 5e-5);
  EXPECT_NEAR(deviation, 0.3530, 5e-5);
  const auto test = fashion_mnist(kFashionMnistDirectory, false);
  EXPECT_EQ(test.size(), 10'000);
  expect_even_classes(test);
}

}  // namespace
}  // namespace lockstep::data
