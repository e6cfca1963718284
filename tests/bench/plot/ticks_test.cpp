#include "lockstep/report/plot/ticks.h"

#include <gtest/gtest.h>
#include <vector>

#include "lockstep/report/plot/axis.h"

namespace lockstep::bench::plot {
namespace {

using Texts = std::vector<std::string>;
using Values = std::vector<double>;

TEST(Ticks, AreMultiplesOfOneTwoFive) {
  EXPECT_EQ(linear_ticks({0, 10}, 5), (Values{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks({0, 2.4}, 5), (Values{0, 0.5, 1, 1.5, 2}));
  EXPECT_EQ(linear_ticks({0, 6.1}, 6), (Values{0, 2, 4, 6}));
  EXPECT_EQ(linear_ticks({0, 0.35}, 4), (Values{0, 0.1, 0.2, 0.3}));
  EXPECT_EQ(linear_ticks({-3, 12}, 4), (Values{0, 5, 10}));
}

TEST(Ticks, RangesEndAtWholeSteps) {
  EXPECT_EQ(nice_range({0, 10.4}, 5), (Range{0, 12.5}));
  EXPECT_EQ(nice_range({-5.5, 13.2}, 5), (Range{-7.5, 15}));
  EXPECT_EQ(nice_logarithmic_range({3, 70}), (Range{2, 100}));
  EXPECT_EQ(nice_logarithmic_range({5, 5}), (Range{5, 10}));
}

TEST(Ticks, OfLogarithmsThinOut) {
  EXPECT_EQ(logarithmic_ticks({1, 100}, 8), (Values{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(logarithmic_ticks({1, 1000}, 8), (Values{1, 10, 100, 1000}));
  EXPECT_EQ(logarithmic_byte_ticks({8, 1 << 20}, 4), (Values{32, 1024, 32768, 1048576}));
}

TEST(NumberText, TellsTicksApart) {
  EXPECT_EQ(tick_texts({0, 0.5, 1}), (Texts{"0.0", "0.5", "1.0"}));
  EXPECT_EQ(tick_texts({-5, 0, 5}), (Texts{"\u22125", "0", "5"}));
  EXPECT_EQ(tick_texts({0, 10000}), (Texts{"0", "10,000"}));
  EXPECT_EQ(tick_texts({0, 2e6}), (Texts{"0", "2\u00d710\u2076"}));
  EXPECT_EQ(tick_texts({0.01, 1}, true), (Texts{"0.01", "1"}));
  EXPECT_EQ(byte_texts({0, 512, 65536}), (Texts{"0", "512 B", "64 KiB"}));
}

TEST(NumberText, HasFourDigitsThatCount) {
  EXPECT_EQ(value_text(1.23456), "1.235");
  EXPECT_EQ(value_text(12345), "12,345");
  EXPECT_EQ(value_text(-0.5), "\u22120.5");
  EXPECT_EQ(value_text(0), "0");
}

TEST(Axis, ShowsBarsAndValuesNearZeroFromZero) {
  Figure figure{.id = "f", .title = "", .series = {{"a", {{1, 10.1}, {2, 5.6}}}}};
  EXPECT_EQ(y_range(figure), (Range{0, 12.5}));
  figure.series.front().points = {{1, 9.9}, {2, 9.5}};
  EXPECT_GT(y_range(figure).low, 9);
}

}  // namespace
}  // namespace lockstep::bench::plot
