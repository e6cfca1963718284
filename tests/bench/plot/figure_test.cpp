#include "lockstep/report/plot/figure.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/axis.h"
#include "lockstep/report/plot/legend.h"
#include "lockstep/report/plot/palette.h"

namespace lockstep::bench::plot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Figure figure_of(Point point) {
  return {.id = "f", .title = "Title", .series = {{"a", {{1, 1}, point}}}};
}

std::string refusal(const Figure& figure) {
  try {
    to_svg(figure);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
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
  EXPECT_THAT(to_svg({.id = "f", .title = ""}), HasSubstr("There are no values to show."));
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

}  // namespace
}  // namespace lockstep::bench::plot
