#include "lockstep/report/plot/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::bench::plot {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
    const auto box = text.rfind("<rect class=\"kind0\"");
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
}  // namespace lockstep::bench::plot
