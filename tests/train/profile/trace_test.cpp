#include "lockstep/record/profile/trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

std::vector<JsonFields> events_in(const nlohmann::json& file) {
  return JsonFields(file, "trace.json").objects("traceEvents");
}

SpanLane lane_of(std::vector<Span> spans) {
  return {.thread = "stage \"0\"\xff", .number = 7, .spans = std::move(spans)};
}

TEST(Trace, HasAnEventForEachSpan) {
  Span layer{.name = "fc", .activity = Activity::kOperator, .begin = 5'000, .end = 7'500};
  layer.layer = "head";
  layer.flops = 12;
  const auto file =
      parse_strict_json(trace_file({trace_events(3, {lane_of({layer})}, 1'000)}), "t");
  const auto events = events_in(file);
  ASSERT_EQ(events.size(), 3U);
  const JsonFields& event = events.back();
  EXPECT_EQ(event.text("ph"), "X");
  EXPECT_EQ(event.text("name"), "fc");
  EXPECT_EQ(event.text("cat"), "operator");
  EXPECT_EQ(event.count("pid"), 3);
  EXPECT_EQ(event.count("tid"), 0);
  EXPECT_EQ(event.number("ts"), 4);
  EXPECT_EQ(event.number("dur"), 2.5);
  EXPECT_EQ(event.object("args").text("layer"), "head");
  EXPECT_EQ(event.object("args").number("flops"), 12);
}

TEST(Trace, NamesRanksAndThreads) {
  const auto file = parse_strict_json(trace_file({trace_events(3, {lane_of({})}, 0)}), "t");
  const auto events = events_in(file);
  EXPECT_EQ(events.at(0).text("name"), "process_name");
  EXPECT_EQ(events[0].object("args").text("name"), "rank 3");
  EXPECT_EQ(events.at(1).text("name"), "thread_name");
  EXPECT_EQ(events[1].object("args").text("name"), "stage \"0\"\xef\xbf\xbd");
}

// They overlap with the spans of their thread, which viewers refuse within one row.
TEST(Trace, GivesReductionsARowOfTheirOwn) {
  const Span backward{.name = "backward", .activity = Activity::kBackward, .begin = 0, .end = 9};
  const Span reduction{.name = "1 bucket", .activity = Activity::kReduction, .begin = 5, .end = 20};
  const auto file =
      parse_strict_json(trace_file({trace_events(0, {lane_of({backward, reduction})}, 0)}), "t");
  const auto events = events_in(file);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[2].count("tid"), 0);
  EXPECT_EQ(events[3].count("tid"), 1);
  EXPECT_EQ(events[4].object("args").text("name"), "gradients on their way");
}

TEST(Trace, JoinsTheEventsOfRanksAndLeavesOutThoseWithout) {
  const std::string first = trace_events(0, {lane_of({})}, 0), third = trace_events(2, {}, 0);
  const auto file = parse_strict_json(trace_file({first, "", third}), "t");
  EXPECT_EQ(events_in(file).size(), 3U);
  EXPECT_TRUE(events_in(parse_strict_json(trace_file({}), "t")).empty());
}

}  // namespace
}  // namespace lockstep
