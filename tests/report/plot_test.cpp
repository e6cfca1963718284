#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/layout.h"
#include "lockstep/report/plot/svg.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Texts = std::vector<std::string>;
using Values = std::vector<double>;

Figure figure_of(Point point) {
  return {.id = "f", .title = "Title", .series = {{"a", {{1, 1}, point}}}};
}

std::string refusal(const Figure& figure) {
  return lockstep::testing::message_of<InvalidArgument>([&] { to_svg(figure); });
}

// After WCAG 2: the contrast of two colours.
double luminance(const std::string& colour) {
  const double shares[] = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += shares[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(const std::string& a, const std::string& b) {
  const double first = luminance(a) + 0.05;
  const double second = luminance(b) + 0.05;
  return std::max(first, second) / std::min(first, second);
}

TEST(Figure, RefusesWhatCannotBeDrawnAndSaysWhere) {
  EXPECT_THAT(
      refusal(figure_of({2, NAN})), AllOf(HasSubstr("'f'"), HasSubstr("series 'a', point 1"),
                                        HasSubstr("y is nan; leave out points")));
  EXPECT_THAT(refusal(figure_of({INFINITY, 2})), HasSubstr("x is inf"));
  EXPECT_THAT(refusal(figure_of({2, 5, 6, 7})), HasSubstr("outside of its interval"));
  Figure figure = figure_of({2, 0});
  figure.y.logarithmic = true;
  EXPECT_THAT(refusal(figure), HasSubstr("no place on a logarithmic axis"));
  figure = figure_of({2, 1});
  figure.x.categories = {"one", "two"};
  EXPECT_THAT(refusal(figure), HasSubstr("no index of one of 2 categories"));
  figure = figure_of({2, 1});
  figure.id = "../f";
  EXPECT_THAT(refusal(figure), HasSubstr("an id is made of"));
}

TEST(Svg, KeepsMarkupOfNamesAsText) {
  Figure figure = figure_of({2, 2});
  figure.title = "</text><script>alert(1)</script> & \"quotes\"";
  const std::string svg = to_svg(figure);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;"));
}

TEST(Svg, TellsEachValue) {
  EXPECT_THAT(to_svg(figure_of({2, 5.25, 5, 5.5})), HasSubstr("a, 2: 5.25 (5 to 5.5)"));
}

TEST(Svg, EndsAnAxisAtTheMostThatAValueCanHave) {
  Figure figure = figure_of({1, 0.98});
  figure.series[0].points.push_back({2, 1});
  EXPECT_GT(y_range(figure).high, 1);
  figure.y.most = 1;
  EXPECT_EQ(y_range(figure).high, 1);
  figure.series[0].points.push_back({3, 2});
  EXPECT_GE(y_range(figure).high, 2) << "what is there is shown";
}

TEST(Svg, SaysThatThereIsNothing) {
  EXPECT_THAT(to_svg(Figure{.id = "f", .title = ""}), HasSubstr("There are no values to show."));
}

TEST(Palette, StandsOutFromThePaper) {
  for (std::size_t series = 0; series < kColours; ++series) {
    EXPECT_GE(contrast(light_colour(series), kLight.paper), 3) << light_colour(series);
    EXPECT_GE(contrast(dark_colour(series), kDark.paper), 3) << dark_colour(series);
  }
}

TEST(Spread, MovesNeighboursApartByEqualParts) {
  using Places = std::vector<double>;
  EXPECT_EQ(*spread({10, 12, 50}, 6, {0, 100}), (Places{8, 14, 50}));
  EXPECT_EQ(*spread({1, 2}, 6, {0, 100}), (Places{0, 6}));
  EXPECT_EQ(*spread({99, 100}, 6, {0, 100}), (Places{94, 100}));
  EXPECT_FALSE(spread({1, 2, 3}, 60, {0, 100}));
}

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

HeatMap map_of(std::size_t names) {
  HeatMap map{
      .id = "confusion", .title = "All", .rows = "class", .columns = "taken for", .names = {}};
  for (std::size_t i = 0; i < names; ++i) map.names.push_back("name" + std::to_string(i));
  map.cells = {{.row = 0, .column = 0, .count = 30, .share = 0.75},
      {.row = 0, .column = names - 1, .count = 10, .share = 0.25}};
  return map;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(HeatMap, ACellSaysWhatItIs) {
  const std::string svg = to_svg(map_of(10));
  EXPECT_THAT(svg, HasSubstr("<title>class name0, taken for name0: 30 (75 %)</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>class name0, taken for name9: 10 (25 %)</title>"));
  EXPECT_EQ(count_of(svg, "<rect"), 2U) << "what is 0 is not drawn";
  EXPECT_EQ(count_of(svg, "class=\"bar s0\""), 1U);
  EXPECT_EQ(count_of(svg, "class=\"bar s1\""), 1U);
}

TEST(HeatMap, EveryNameStandsByItsRowAndItsColumn) {
  for (const std::size_t names : {2U, 10U, 100U, 200U}) {
    const std::string svg = to_svg(map_of(names));
    EXPECT_EQ(count_of(svg, ">name1</text>"), 2U) << names;
    EXPECT_EQ(count_of(svg, "rotate(-90"), names);
  }
}

// The pitch of 100 names is 14 pixels, of letters of 11: less could not be read.
TEST(HeatMap, NamesOfManyClassesAreReadableAndCountsGiveWay) {
  const std::string few = to_svg(map_of(10)), many = to_svg(map_of(100));
  EXPECT_THAT(few, AllOf(HasSubstr("font-size=\"12\""), HasSubstr(">30</text>")));
  EXPECT_THAT(many, AllOf(HasSubstr("font-size=\"11\""), HasSubstr("width=\"14\" height=\"14\""),
                        Not(HasSubstr(">30</text>"))));
}

TEST(HeatMap, ALongNameIsCutAndMarkupIsText) {
  HeatMap map = map_of(3);
  map.names[0] = "<b>&" + std::string(60, 'm');
  const std::string svg = to_svg(map);
  EXPECT_THAT(
      svg, AllOf(HasSubstr("&lt;b&gt;&amp;"), HasSubstr("m...</text>"), Not(HasSubstr("<b>"))));
}

TEST(HeatMap, WhatCannotBeDrawnIsRefused) {
  EXPECT_THROW(check_heat_map(map_of(kMostHeatMapNames + 1)), InvalidArgument);
  HeatMap none;
  EXPECT_THROW(check_heat_map(none), InvalidArgument);
  HeatMap outside = map_of(3);
  outside.cells[0].column = 3;
  EXPECT_THROW(to_svg(outside), InvalidArgument);
  HeatMap larger = map_of(3);
  larger.cells[0].share = 1.5;
  EXPECT_THROW(to_svg(larger), InvalidArgument);
}

Timeline timeline_of_two() {
  return {.id = "step",
      .title = "One step",
      .unit = "ms",
      .length = 10,
      .rows = {"main", "stage <0>"},
      .kinds = {{"forward"}, {"idle", true}, {"never"}},
      .boxes = {{.row = 0, .kind = 0, .begin = 0, .end = 5, .name = "fc"},
          {.row = 1, .kind = 1, .begin = 5, .end = 10, .name = "receive"}}};
}

TEST(Timeline, ABoxSaysWhatItIsAndIsAsLongAsItsTime) {
  const std::string svg = to_svg(timeline_of_two());
  EXPECT_THAT(svg, HasSubstr("<title>forward: fc, 5 ms</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>idle: receive, 5 ms</title>"));
  Timeline longer = timeline_of_two();
  longer.length = 20;
  const auto width = [](const std::string& text) {
    const auto box = text.rfind("<rect class=\"bar s0\"");
    const auto at = text.find("width=\"", box) + 7;
    return std::stod(text.substr(at));
  };
  EXPECT_NEAR(width(svg), 2 * width(to_svg(longer)), 0.05);
}

TEST(Timeline, ALegendNamesTheKindsThatAreThere) {
  const std::string svg = to_svg(timeline_of_two());
  EXPECT_THAT(svg, HasSubstr(">forward</text>"));
  EXPECT_THAT(svg, HasSubstr(">idle</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">never</text>")));
  EXPECT_THAT(svg, HasSubstr(">stage &lt;0&gt;</text>"));
}

TEST(Timeline, RefusesWhatCannotBeDrawn) {
  Timeline outside = timeline_of_two();
  outside.boxes[0].end = 11;
  EXPECT_THROW(to_svg(outside), InvalidArgument);
  outside = timeline_of_two();
  outside.boxes[0].row = 2;
  EXPECT_THROW(to_svg(outside), InvalidArgument);
  outside = timeline_of_two();
  outside.length = 0;
  EXPECT_THROW(to_svg(outside), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::plot
