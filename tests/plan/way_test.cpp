#include "lockstep/plan/way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/profiles.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;
using testing::free_machine;
using ::testing::HasSubstr;
using testing::uniform;

std::vector<std::string> described(const Machine& machine, const WayChoice& choice) {
  std::vector<std::string> texts;
  for (const Way& way : ways_on(machine, choice)) texts.push_back(describe(way));
  return texts;
}

TEST(Way, IsNamedAsTheFlagNamesIt) {
  EXPECT_EQ(kind_of({}), "serial");
  EXPECT_EQ(kind_of({.replicas = 2, .replication = Replication::kThreads}), "dp");
  EXPECT_EQ(kind_of({.replicas = 2}), "ddp");
  EXPECT_EQ(kind_of({.stages = 2, .schedule = ScheduleKind::kSequential}), "mp");
  EXPECT_EQ(kind_of({.replicas = 2, .stages = 2}), "ddp+pp");
  EXPECT_EQ(
      describe({.replicas = 2, .stages = 4, .micro_batches = 8}), "ddp+pp 2 x 4 (1f1b, 8 chunks)");
  EXPECT_EQ(describe({.replicas = 8, .replication = Replication::kShards, .copies = 2}),
      "fsdp x 8 (2 copies)");
}

TEST(Ways, AreAllThatTheMachineHasPlacesFor) {
  EXPECT_THAT(described(free_machine(1, 2), {.micro_batches = {4}}),
      ElementsAre("serial", "dp x 2", "ddp x 2", "fsdp x 2", "mp x 2", "pp x 2 (1f1b, 4 chunks)"));
  EXPECT_THAT(
      described(free_machine(2, 2), {.kinds = {"dp", "ddp", "ddp+pp"}, .micro_batches = {4}}),
      ElementsAre("dp x 2", "ddp x 2", "ddp x 4", "ddp+pp 2 x 2 (1f1b, 4 chunks)"));
  EXPECT_THAT(described(free_machine(1, 3), {.kinds = {"ddp"}}), ElementsAre("ddp x 2", "ddp x 3"));
}

// Else the command that is recommended would be refused.
TEST(Ways, HaveOnlySettingsThatTrainTakes) {
  const Way all{.checkpoint = Checkpoint::kAlways,
      .accumulated = 2,
      .is_sharded = true,
      .sent_as = SentAs::kBf16,
      .bucket_bytes = 1 << 20,
      .copies = 2};
  const Way usual;
  for (const Way& way : ways_on(free_machine(1, 4), {.micro_batches = {4}, .settings = all})) {
    const std::string kind = kind_of(way);
    const bool is_ddp = kind == "ddp";
    EXPECT_EQ(way.sent_as != usual.sent_as, is_ddp || kind == "fsdp") << kind;
    EXPECT_EQ(way.bucket_bytes != usual.bucket_bytes, is_ddp) << kind;
    EXPECT_EQ(way.is_sharded, kind.starts_with("ddp")) << kind;
    EXPECT_EQ(way.copies > 1, kind == "fsdp") << kind;
    EXPECT_EQ(way.checkpoint != usual.checkpoint, kind != "dp") << kind;
    EXPECT_EQ(way.accumulated > 1, way.stages == 1) << kind;
  }
}

TEST(Ways, SayWhyTheyAreImpossible) {
  const Machine machine = free_machine(2, 2);
  const auto reason = [&](const Way& way, double batch) {
    return why_not(way, uniform(3), batch, machine);
  };
  EXPECT_THAT(reason({.replicas = 8}, 8), HasSubstr("needs 8 places; there are 4"));
  EXPECT_THAT(reason({.replicas = 4, .replication = Replication::kThreads}, 8),
      HasSubstr("in one node, which has 2"));
  EXPECT_THAT(reason({.replicas = 4, .replication = Replication::kShards, .copies = 3}, 8),
      HasSubstr("4 places cannot share 3 copies equally"));
  EXPECT_THAT(reason({.replicas = 4}, 10), HasSubstr("cannot be divided by 4"));
  EXPECT_THAT(reason({.stages = 2, .micro_batches = 3}, 8), HasSubstr("into 3 micro-batches"));
  EXPECT_THAT(reason({.stages = 2, .schedule = ScheduleKind::kInterleaved, .micro_batches = 2}, 8),
      HasSubstr("has 3 layers and cannot be cut into 4 stages"));
  EXPECT_EQ(why_not({.stages = 2, .micro_batches = 2}, uniform(1), 8, machine),
      "uniform has 1 layer and cannot be cut into 2 stages");
  EXPECT_EQ(reason({.replicas = 2, .stages = 2, .micro_batches = 2}, 8), "");
}

TEST(Ways, OfAPlaceMeasuredAloneNeedALinkBetweenNeighbours) {
  ModelProfile alone = uniform(3);
  alone.knows_within = false;
  const auto reason = [&](const Way& way, const Machine& machine) {
    return why_not(way, alone, 8, machine);
  };
  for (const Way& way : {Way{.replicas = 2}, Way{.replicas = 4}, Way{.stages = 2}})
    EXPECT_THAT(reason(way, free_machine(2, 2)), HasSubstr("--within 10GB,20us"));
  EXPECT_EQ(reason({.replicas = 2}, free_machine(1, 2, 1e9)), "") << "it is given";
  EXPECT_EQ(reason({.replicas = 2}, free_machine(2, 1)), "") << "nobody has a neighbour";
  EXPECT_EQ(reason({}, free_machine(2, 2)), "");
}

TEST(Ways, OfZeroBubbleNeedTheHalvesOfBackward) {
  ModelProfile whole = uniform(3);
  for (LayerCurves& layer : whole.layers) layer.backward_input = layer.backward_weight = {};
  Way way{.stages = 2, .schedule = ScheduleKind::kZeroBubble, .micro_batches = 2};
  EXPECT_EQ(why_not(way, uniform(3), 8, free_machine(1, 2)), "");
  EXPECT_THAT(why_not(way, whole, 8, free_machine(1, 2)), HasSubstr("no halves of backward"));
  way.schedule = ScheduleKind::k1F1B;
  EXPECT_EQ(why_not(way, whole, 8, free_machine(1, 2)), "");
}

TEST(Ways, WithAHookNeedGradientsThatItMakesShorter) {
  ModelProfile profile = uniform(3);
  const Way way{.replicas = 2, .sent_as = SentAs::kBf16};
  for (const char* const precision : {"32", "bf16-mixed"}) {
    profile.precision = precision;
    EXPECT_EQ(why_not(way, profile, 8, free_machine(1, 2)), "");
  }
  for (const char* const precision : {"bfloat16", "float64"}) {
    profile.precision = precision;
    EXPECT_THAT(why_not(way, profile, 8, free_machine(1, 2)), HasSubstr("what --comm-hook makes"));
  }
  EXPECT_EQ(why_not({.replicas = 2}, profile, 8, free_machine(1, 2)), "");
}

}  // namespace
}  // namespace lockstep::plan
