#include "lockstep/train/state/run_state.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Numbers that decimal text loses unless all digits are written.
RunState state() {
  RunState result;
  result.step = 1234567890123;
  result.position = {.epoch = 3, .samples = 640, .epoch_samples = 60000};
  result.schedule_step = 77;
  result.setup = {.seed = 42,
      .world_size = 4,
      .replicas = 2,
      .stages = 2,
      .balance = {3, 4},
      .configuration = {{"batch-size", "32"}, {"model", "\"toy\""}},
      .data = {.name = "mnist", .samples = 60000, .classes = 10, .fingerprint = "00ff"}};
  result.scaler = nn::GradScalerState{65536, 2, 0.5, 2000, 17};
  result.plateau = {.lr = 0.1 + 0.2, .best = 1.0 / 3, .bad = 2, .cooldown_left = 1};
  result.ema_updates = 9;
  result.skipped_steps = 1;
  result.seconds = {.elapsed = 10.1, .training = 10, .epoch = 1e-300};
  result.restarts = 2;
  result.best = BestEpoch{.epoch = 2, .value = std::nextafter(0.5, 1)};
  result.best_snapshot = "step-00000002";
  result.epochs = {{.epoch = 1, .train_seconds = 2.5, .train_loss = 0.1 + 0.7, .samples = 60000},
      {.epoch = 2,
          .train_seconds = 2.5,
          .train_loss = 0.5,
          .val = {.loss = 2.0 / 3},
          .ema = {.top1 = 0.875},
          .validated = true,
          .samples = 60000,
          .samples_per_s = 24000,
          .val_seconds = 0.1 + 0.2,
          .val_samples = 10000}};
  result.epoch_total = {.steps = 20,
      .samples = 640,
      .loss_sum = 640 * (1.0 / 7),
      .seconds = 1.5,
      .data_seconds = 0.1};
  return result;
}

RunState read(const std::string& text) { return parse_run_state(text, "state.json"); }

std::string refusal(const Json& object) {
  return testing::message_of<DataError>([&] { read(object.dump()); });
}

TEST(RunState, ReadsBackAsTheSameBits) {
  const RunState before = state(), after = read(to_json(before));
  EXPECT_EQ(to_json(after), to_json(before));
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.position, before.position);
  EXPECT_EQ(after.setup.balance, before.setup.balance);
  EXPECT_EQ(after.setup.configuration, before.setup.configuration);
  EXPECT_EQ(after.setup.data, before.setup.data);
  EXPECT_EQ(after.scaler, before.scaler);
  EXPECT_EQ(after.plateau, before.plateau);
  EXPECT_EQ(after.seconds.epoch, before.seconds.epoch);
  EXPECT_EQ(after.best->value, before.best->value);
  EXPECT_EQ(after.epoch_total, before.epoch_total);
  EXPECT_EQ(after.epochs[0].train_loss, before.epochs[0].train_loss);
  EXPECT_FALSE(after.epochs[0].val.loss);
  EXPECT_EQ(after.epochs[1].val, before.epochs[1].val);
  EXPECT_EQ(after.epochs[1].ema, before.epochs[1].ema);
  EXPECT_TRUE(after.epochs[1].validated);
}

TEST(RunState, KnowsWhichRunItIsOf) {
  EXPECT_NE(new_run_id(), new_run_id());
  EXPECT_EQ(run_id_in("{}", "state.json"), "");
  RunState own = state();
  own.setup.run = new_run_id();
  own.setup.batches_a_step = 6;
  EXPECT_EQ(read(to_json(own)).setup.run, own.setup.run);
  EXPECT_EQ(read(to_json(own)).setup.batches_a_step, 6);
  EXPECT_EQ(run_id_in(to_json(own), "state.json"), own.setup.run);
}

TEST(RunState, OfAnEarlierVersionReadsBackWhole) {
  const auto keys = [](const Json& object) {
    std::vector<std::string> all;
    for (const auto& [key, value] : object.items()) all.push_back(key);
    return all;
  };
  for (const std::string folder : {"serial", "ddp", "pp"}) {
    std::ifstream file(
        LOCKSTEP_SOURCE_DIR "/tests/golden/runs/" + folder + "/snapshots/step-00000010/state.json");
    const std::string old{std::istreambuf_iterator<char>(file), {}};
    const std::string now = to_json(read(old));
    EXPECT_EQ(nlohmann::json::parse(now), nlohmann::json::parse(old)) << folder;
    EXPECT_EQ(keys(Json::parse(now)), keys(Json::parse(old))) << "in another order";
  }
}

TEST(RunState, OfAStartReadsBackToo) {
  const RunState start = read(to_json(RunState{}));
  EXPECT_EQ(start.step, 0);
  EXPECT_FALSE(start.best || start.scaler || start.plateau.best);
  EXPECT_TRUE(start.epochs.empty());
}

// Every field is looked at: without it, or with a value of no possible type, there is no state.
TEST(RunState, EveryFieldMustBeThereAndOfItsType) {
  const Json whole = Json::parse(to_json(state()));
  int fields = 0;
  for (const auto& [key, value] : whole.items()) {
    Json without = whole, other = whole;
    without.erase(key);
    EXPECT_THAT(
        refusal(without), AllOf(HasSubstr("state.json"), HasSubstr(key), HasSubstr("missing")));
    other[key] = true;
    EXPECT_THAT(refusal(other), AllOf(HasSubstr("state.json"), HasSubstr(key))) << key;
    ++fields;
    if (!value.is_object()) continue;
    for (const auto& [inner, ignored] : value.items()) {
      Json damaged = whole;
      damaged[key][inner] = Json::array({1});
      EXPECT_THAT(refusal(damaged), HasSubstr(inner)) << key;
    }
  }
  EXPECT_GT(fields, 20);
}

TEST(RunState, ImpossibleValuesAreRefused) {
  const auto with = [](const char* key, const Json& value) {
    Json object = Json::parse(to_json(state()));
    object[key] = value;
    return refusal(object);
  };
  EXPECT_THAT(with("v", 2), HasSubstr("version"));
  EXPECT_THAT(with("step", -1), HasSubstr("step must be a whole number from 0 to"));
  EXPECT_THAT(with("step", 1.5), HasSubstr("step must be a whole number"));
  EXPECT_THAT(with("step", 18446744073709551615U), HasSubstr("step must be"));
  EXPECT_THAT(with("epoch", 0), HasSubstr("epoch"));
  EXPECT_THAT(
      with("world_size", 4294967296), HasSubstr("world_size must be a whole number from 1 to"));
  for (const char* key : {"world_size", "replicas", "stages"})
    EXPECT_THAT(with(key, 0), HasSubstr(std::string(key) + " must be")) << "it divides by it";
  EXPECT_THAT(with("step", std::int64_t{1} << 62), HasSubstr("step must be"));
  EXPECT_THAT(with("schedule_step", std::int64_t{1} << 62), HasSubstr("schedule_step must be"));
  EXPECT_THAT(with("epoch", 1'000'000'000), HasSubstr("epoch must be a whole number from 1 to 3"));
  EXPECT_THAT(with("samples", 60001), HasSubstr("samples must be a whole number from 0 to 60000"));
  EXPECT_THAT(with("epoch_samples", 60001), HasSubstr("epoch_samples must be"));
  EXPECT_THAT(with("balance", {1, 0}), HasSubstr("balance"));
  EXPECT_THAT(
      with("training_seconds", -1.0), HasSubstr("training_seconds must be a number of at least 0"));
}

TEST(RunState, OfAnotherStepThanItsManifestIsRefused) {
  const std::string text = to_json(state());
  EXPECT_NO_THROW(parse_run_state(text, "state.json", state().step));
  EXPECT_THAT(testing::message_of<DataError>([&] { parse_run_state(text, "state.json", 7); }),
      HasSubstr("step must be that of the manifest, 7"));
}

TEST(RunState, RefusesWhatIsNotJsonOrHasAKeyTwice) {
  const std::string text = to_json(state());
  EXPECT_THROW(read(""), DataError);
  EXPECT_THROW(read(text.substr(0, text.size() / 2)), DataError);
  std::string twice = text;
  twice.insert(1, "\"step\": 5,");
  EXPECT_THROW(read(twice), DataError);
  EXPECT_THROW(read(std::string(1000, '[')), DataError);
}

// Only a rank that saved without the others writes them.
TEST(RunState, LastLinesOfMetricsAreThereIfThereAreSome) {
  EXPECT_FALSE(Json::parse(to_json(state())).contains("last_lines"));
  RunState rescued = state();
  rescued.last_lines = {{.elapsed = 1.5,
                            .epoch = 3,
                            .step = 8,
                            .split = "train",
                            .scores = {.loss = 0.1 + 0.7},
                            .lr = 1.0 / 3},
      {.step = 8, .split = "val", .scores = {.loss = 2, .top1 = 0.5}}};
  const std::string text = to_json(rescued);
  const RunState back = read(text);
  ASSERT_EQ(back.last_lines.size(), 2U);
  EXPECT_EQ(back.last_lines[0].split, "train");
  EXPECT_EQ(back.last_lines[0].scores.loss, 0.1 + 0.7);
  EXPECT_EQ(back.last_lines[0].lr, 1.0 / 3);
  EXPECT_FALSE(back.last_lines[0].step_ms);
  EXPECT_EQ(to_json(back), text);
  Json damaged = Json::parse(text);
  damaged["last_lines"][1].erase("split");
  EXPECT_THAT(refusal(damaged), HasSubstr("split"));
}

TEST(RunState, KeysOfLaterVersionsAreIgnored) {
  Json object = Json::parse(to_json(state()));
  object["new"] = 1;
  EXPECT_EQ(read(object.dump()).step, state().step);
}

}  // namespace
}  // namespace lockstep
