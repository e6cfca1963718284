#include "lockstep/record/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMillisecond = 1'000'000;

Span span(Activity activity, const std::string& name, std::int64_t begin, std::int64_t end) {
  return {
      .name = name, .activity = activity, .begin = begin * kMillisecond, .end = end * kMillisecond};
}

Span operator_of(const std::string& layer, std::int64_t begin, std::int64_t end,
    std::uint64_t first_node, std::uint64_t end_node) {
  Span made = span(Activity::kOperator, "aten::conv2d", begin, end);
  made.layer = layer;
  made.first_node = first_node;
  made.end_node = end_node;
  made.flops = 6e6;
  return made;
}

Span node(std::uint64_t number, std::int64_t begin, std::int64_t end) {
  Span made = span(Activity::kGradientNode, "ConvolutionBackward0", begin, end);
  made.first_node = number;
  made.end_node = number + 1;
  made.maker = 1;
  return made;
}

// One step of 100 ms, in the order in which its spans end.
SpanLane main_thread() {
  Span layer = span(Activity::kLayer, "block", 12, 32);
  layer.first_node = 5;
  layer.end_node = 9;
  return {.thread = "lockstep-train",
      .number = 1,
      .is_main = true,
      .spans = {span(Activity::kInput, "batch", 0, 10), operator_of("block.conv", 14, 24, 5, 7),
          layer, span(Activity::kForward, "forward", 10, 40), node(8, 41, 45), node(6, 45, 65),
          span(Activity::kCommunication, "reducer", 70, 75),
          span(Activity::kReduction, "2 buckets", 60, 75),
          span(Activity::kBackward, "backward", 40, 80),
          span(Activity::kOptimizer, "optimizer", 80, 90),
          span(Activity::kStep, "step 4", 0, 100)}};
}

// A stage waits for a message, and the message is carried meanwhile.
SpanLane stage_thread() {
  return {.thread = "stage 0",
      .number = 2,
      .spans = {span(Activity::kForward, "forward", 10, 20),
          span(Activity::kCommunication, "wait", 21, 29), span(Activity::kIdle, "receive", 20, 30),
          span(Activity::kBackward, "backward", 30, 50)}};
}

const LayerProfile& layer_named(const RankProfile& profile, const std::string& name) {
  for (const LayerProfile& layer : profile.layers)
    if (layer.name == name) return layer;
  throw Error("no layer " + name);
}

TEST(Profile, DividesAStepIntoPhasesThatAddUpToIt) {
  const RankProfile profile = profile_of({main_thread()});
  EXPECT_EQ(profile.steps, 1);
  EXPECT_THAT(profile.step, DoubleEq(100));
  const LaneProfile& lane = profile.lanes.at(0);
  EXPECT_THAT(lane.of(StepPhase::kInput), DoubleEq(10));
  EXPECT_THAT(lane.of(StepPhase::kForward), DoubleEq(30));
  EXPECT_THAT(lane.of(StepPhase::kBackward), DoubleEq(35));
  EXPECT_THAT(lane.of(StepPhase::kCommunication), DoubleEq(5));
  EXPECT_THAT(lane.of(StepPhase::kOptimizer), DoubleEq(10));
  EXPECT_THAT(lane.of(StepPhase::kOther), DoubleEq(10));
  EXPECT_THAT(std::accumulate(lane.phases.begin(), lane.phases.end(), 0.0), DoubleEq(100));
}

TEST(Profile, GivesLayersTheirOperatorsAndTheNodesThatTheseMade) {
  const RankProfile profile = profile_of({main_thread()});
  const LayerProfile& conv = layer_named(profile, "block.conv");
  EXPECT_THAT(conv.forward, DoubleEq(10));
  EXPECT_THAT(conv.backward, DoubleEq(20));  // node 6
  EXPECT_THAT(conv.flops, DoubleEq(6e6));
  const LayerProfile& block = layer_named(profile, "block");
  EXPECT_THAT(block.forward, DoubleEq(10));  // without its operator
  EXPECT_THAT(block.backward, DoubleEq(4));  // node 8 is of no operator
  const LayerProfile& outside = layer_named(profile, "");
  EXPECT_THAT(outside.forward, DoubleEq(10));
  EXPECT_THAT(outside.backward, DoubleEq(11));
}

TEST(Profile, TellsMatrixProductsFromConvolutions) {
  SpanLane lane = main_thread();
  Span product = operator_of("block.linear", 33, 36, 9, 10);
  product.name = "aten::linear";
  product.flops = 2e6;
  lane.spans.insert(lane.spans.begin() + 3, product);
  const RankProfile profile = profile_of({lane});
  EXPECT_THAT(profile.flops, DoubleEq(8e6));
  EXPECT_THAT(profile.product_flops, DoubleEq(2e6));
  const std::string text = profile_json({.precision = "float32", .ranks = {profile}});
  EXPECT_THAT(read_profile(text, "profile.json").ranks.at(0).product_flops, DoubleEq(2e6));
}

TEST(Profile, TakesTheMeanOverItsSteps) {
  SpanLane lane = main_thread();
  lane.spans.push_back(span(Activity::kForward, "forward", 200, 250));
  lane.spans.push_back(span(Activity::kStep, "step 5", 200, 260));
  const RankProfile profile = profile_of({lane});
  EXPECT_EQ(profile.steps, 2);
  EXPECT_THAT(profile.step, DoubleEq(80));
  EXPECT_THAT(profile.lanes.at(0).of(StepPhase::kForward), DoubleEq(40));
  EXPECT_THAT(profile.flops, DoubleEq(3e6));
}

TEST(Profile, TellsHiddenCommunicationFromExposed) {
  const RankProfile profile = profile_of({main_thread()});
  EXPECT_THAT(profile.reduction, DoubleEq(15));
  EXPECT_THAT(profile.exposed, DoubleEq(5));
  EXPECT_THAT(profile_text({.ranks = {profile}}), HasSubstr("15.00 ms on their way, 67 % of it"));
}

TEST(Profile, CallsWhatAStageWaitsForIdle) {
  const RankProfile profile = profile_of({stage_thread(), main_thread()});
  ASSERT_EQ(profile.lanes.size(), 2U);
  EXPECT_TRUE(profile.lanes[0].is_main);
  const LaneProfile& stage = profile.lanes[1];
  EXPECT_THAT(stage.of(StepPhase::kIdle), DoubleEq(10));
  EXPECT_THAT(stage.of(StepPhase::kCommunication), DoubleEq(0));
  EXPECT_THAT(stage.of(StepPhase::kOther), DoubleEq(60));
  EXPECT_THAT(profile_text({.ranks = {profile}}),
      HasSubstr("stage 0: 25 % of the pipeline's time is idle (bubble)"));
}

TEST(Profile, LeavesOutPhasesThatTakeNoTime) {
  RunProfile run{.ranks = {profile_of({main_thread()})}};
  run.ranks[0].lanes[0].of(StepPhase::kCopy) = 0.004;
  EXPECT_THAT(profile_text(run), Not(HasSubstr("copy")));
  run.ranks[0].lanes[0].of(StepPhase::kCopy) = 0.006;
  EXPECT_THAT(profile_text(run), HasSubstr("copy"));
}

// Stage 0 computes from 10 to 50 with 10 idle; the others go on until 70.
TEST(Profile, CallsAStageIdleUntilAllAreDone) {
  SpanLane main{.thread = "main", .number = 1, .is_main = true};
  main.spans = {span(Activity::kStages, "stages", 5, 70), span(Activity::kStep, "step 4", 0, 100)};
  const RankProfile profile = profile_of({main, stage_thread()});
  const LaneProfile& stage = profile.lanes.at(1);
  EXPECT_THAT(stage.of(StepPhase::kIdle), DoubleEq(10 + 5 + 20));
  EXPECT_THAT(stage.of(StepPhase::kOther), DoubleEq(35));
}

TEST(Profile, LeavesOutThreadsWithoutAPartInTheStep) {
  SpanLane loader{.thread = "loader", .number = 3};
  loader.spans = {span(Activity::kOperator, "aten::empty", 1, 2)};
  EXPECT_EQ(profile_of({main_thread(), loader}).lanes.size(), 1U);
}

TEST(Profile, NeedsAStep) {
  EXPECT_THROW(profile_of({}), DataError);
  EXPECT_THROW(profile_of({stage_thread()}), DataError);
}

TEST(Profile, ShowsTheShareOfThePeakOnlyWhereItWasMeasured) {
  RunProfile run{.precision = "float32", .ranks = {profile_of({main_thread()})}};
  run.ranks[0].flops = 2e9;  // 20 GFLOP/s
  EXPECT_THAT(arithmetic_text(run), HasSubstr("20.0 GFLOP/s"));
  EXPECT_THAT(arithmetic_text(run), Not(HasSubstr("%")));
  run.ranks[0].peak = 8e10;
  EXPECT_THAT(arithmetic_text(run), HasSubstr("20.0 GFLOP/s, 25.0 % of the 80.0"));
  EXPECT_THAT(arithmetic_text(run), Not(HasSubstr("Winograd")));
  run.ranks.push_back(run.ranks[0]);  // twice as much of twice as much
  EXPECT_THAT(arithmetic_text(run), HasSubstr("40.0 GFLOP/s, 25.0 % of the 160.0"));
  for (RankProfile& rank : run.ranks) rank.peak = 1.6e10;
  EXPECT_THAT(arithmetic_text(run), HasSubstr("125.0 % of the 32.0"));
  EXPECT_THAT(arithmetic_text(run), HasSubstr("Winograd"));
}

TEST(Profile, IsReadAsItWasWritten) {
  RunProfile run{.precision = "float32", .ranks = {profile_of({stage_thread(), main_thread()})}};
  run.ranks[0].peak = 8e10;
  const std::string text = profile_json(run);
  const RunProfile read = read_profile(text, "profile.json");
  EXPECT_EQ(profile_json(read), text);
  EXPECT_EQ(profile_text(read), profile_text(run));
  EXPECT_FALSE(read.ranks.at(0).timeline.empty());
}

RunProfile with_chain() {
  RunProfile run{.precision = "float32", .ranks = {profile_of({main_thread()})}};
  run.ranks[0].batch = 32;
  run.ranks[0].chain = {{.name = "conv",
                            .forward = 1.5e-3,
                            .backward_weight = 2.25e-3,
                            .backward = 2.5e-3,
                            .activation_bytes = 4096,
                            .output_bytes = 2048,
                            .parameter_bytes = {36, 4}},
      {.name = "relu",
          .forward = 0.5e-3,
          .backward_input = 0.25e-3,
          .backward = 0.25e-3,
          .output_bytes = 2048}};
  return run;
}

TEST(Profile, HasTheChainAndTheBatchThatItWasMeasuredWith) {
  const RunProfile run = with_chain();
  const std::string text = profile_json(run);
  const RankProfile rank = read_profile(text, "profile.json").ranks.at(0);
  EXPECT_EQ(rank.batch, 32);
  ASSERT_EQ(rank.chain.size(), 2U);
  const LayerCosts& conv = rank.chain[0];
  EXPECT_EQ(conv.name, "conv");
  EXPECT_EQ(conv.forward, 1.5e-3);
  EXPECT_EQ(conv.backward_input, 0);
  EXPECT_EQ(conv.backward_weight, 2.25e-3);
  EXPECT_EQ(conv.backward, 2.5e-3);
  EXPECT_EQ(conv.activation_bytes, 4096);
  EXPECT_EQ(conv.output_bytes, 2048);
  EXPECT_THAT(conv.parameter_bytes, ElementsAre(36, 4));
  EXPECT_EQ(rank.chain[1].backward_input, 0.25e-3);
  EXPECT_THAT(rank.chain[1].parameter_bytes, ElementsAre());
  EXPECT_EQ(profile_json(read_profile(text, "profile.json")), text);
  EXPECT_EQ(profile_text(run),
      profile_text({.precision = "float32", .ranks = {profile_of({main_thread()})}}));
}

// Of an older version, or of a rank whose model lies in several places.
TEST(Profile, IsReadWithoutAChain) {
  RunProfile run = with_chain();
  run.ranks[0].chain.clear();
  const std::string text = profile_json(run);
  EXPECT_THAT(text, Not(HasSubstr("chain")));
  EXPECT_THAT(text, Not(HasSubstr("batch\":32")));
  const RankProfile rank = read_profile(text, "profile.json").ranks.at(0);
  EXPECT_EQ(rank.batch, 0);
  EXPECT_THAT(rank.chain, ElementsAre());
}

void expect_refused(const std::string& part, const std::string& instead, const std::string& field) {
  std::string text = profile_json(with_chain());
  const auto place = text.find(part);
  ASSERT_NE(place, std::string::npos) << part;
  text.replace(place, part.size(), instead);
  try {
    read_profile(text, "profile.json");
    ADD_FAILURE() << "taken: " << instead;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(field)) << instead;
  }
}

TEST(Profile, RefusesAChainThatNoRankHasMeasured) {
  expect_refused("\"batch\":32,", "", "batch");
  expect_refused("\"batch\":32", "\"batch\":0", "batch");
  expect_refused("\"batch\":32", "\"batch\":1.5", "batch");
  expect_refused("\"chain\":[", "\"chain\":[],\"other\":[", "chain");
  expect_refused("\"chain\":[", "\"other\":[", "batch");
  expect_refused("\"chain\":[", "\"chain\":7,\"other\":[", "chain");
  expect_refused("\"forward_ms\":1.5", "\"forward_ms\":-1.5", "forward_ms");
  expect_refused("\"forward_ms\":1.5", "\"forward_ms\":null", "forward_ms");
  expect_refused(
      "\"backward_weight_ms\":2.25", "\"backward_weight_ms\":\"2\"", "backward_weight_ms");
  expect_refused("\"backward_input_ms\":0.0,", "", "backward_input_ms");
  expect_refused("\"activation_bytes\":4096", "\"activation_bytes\":-1", "activation_bytes");
  expect_refused("\"output_bytes\":2048", "\"output_bytes\":0.5", "output_bytes");
  for (const char* bytes : {"[36,-4]", "[36,4.5]", "[36,1e300]", "[36,null]", "[36,\"4\"]", "36"})
    expect_refused("\"parameters\":[36,4]", std::string("\"parameters\":") + bytes, "parameters");
}

TEST(Profile, RefusesOtherFiles) {
  EXPECT_THROW(read_profile("{}", "profile.json"), DataError);
  EXPECT_THROW(read_profile(R"({"v":1,"precision":"float32","ranks":[]})", "f"), DataError);
  RunProfile run{.precision = "float32", .ranks = {profile_of({main_thread()})}};
  std::string text = profile_json(run);
  text.replace(text.find("\"phase\":\"input\""), 15, "\"phase\":\"lunch\"");
  EXPECT_THROW(read_profile(text, "profile.json"), DataError);
}

TEST(Profile, DrawsOneStepAsBoxesThatDoNotOverlap) {
  const RankProfile profile = profile_of({main_thread()});
  double end = 0;
  for (const TimelineSpan& box : profile.timeline) {
    if (box.lane == profile.lanes.size()) {
      EXPECT_THAT(box.begin, DoubleEq(60));
      EXPECT_THAT(box.end, DoubleEq(75));
      continue;
    }
    EXPECT_GE(box.begin, end);
    end = box.end;
  }
  EXPECT_THAT(end, DoubleEq(100));
}

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
