#include "lockstep/report/plot/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::bench::plot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_EQ(count_of(svg, "class=\"right\""), 1U);
  EXPECT_EQ(count_of(svg, "class=\"wrong\""), 1U);
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
  EXPECT_THAT(many, AllOf(HasSubstr("<g font-size=\"11\">"),
                        HasSubstr("width=\"14\" height=\"14\""), Not(HasSubstr(">30</text>"))));
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

}  // namespace
}  // namespace lockstep::bench::plot
