#include "bench/studies/ways.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/cli/bench_flags.h"
#include "bench/studies/bench_request.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::ways {
namespace {

using cli::parse_bench;
using lockstep::testing::expect_parts;
using testing::cell_named;
using ::testing::ElementsAre;
using testing::expect_rows;
using testing::expect_values;
using ::testing::HasSubstr;
using testing::made_rates;
using ::testing::Not;
using testing::RatesByCell;
using testing::row_text;
using testing::text_of;
using ::testing::ThrowsMessage;

std::vector<std::string> ids_of(const StudyOptions& options) {
  const Study study = make_study(options);
  check_study(study);
  std::vector<std::string> ids;
  for (const StudyCell& cell : study.cells) ids.push_back(cell.id);
  return ids;
}

std::string joined_words(const std::vector<std::string>& words) { return joined(words, " "); }

TEST(WaysGrid, BeginsWithOnePlaceAndThenWithTheMost) {
  EXPECT_THAT(
      ids_of({.cores = 2}), ElementsAre("serial-p1-c1-b128-32", "serial-p1-c2-b128-32",
                                "dp-p2-c2-b128-32", "ddp-p2-c2-b128-32", "pp-p2-c2-b128-32"));
  EXPECT_THAT(ids_of({.cores = 1}), ElementsAre("serial-p1-c1-b128-32"));
  EXPECT_THAT(ids_of({.cores = 9, .ways = {.ways = {"ddp", "serial"}}}),
      ElementsAre("serial-p1-c2-b128-32", "ddp-p4-c8-b128-32", "serial-p1-c8-b128-32",
          "ddp-p2-c4-b128-32", "serial-p1-c4-b128-32"));
}

TEST(WaysGrid, IsEveryCombinationOfWhatWasAsked) {
  const StudyOptions options{.cores = 4,
      .ways = {.batches = {64, 32},
          .places = {3, 2, 3},
          .ways = {"dp", "pp"},
          .precisions = {"bf16-mixed", "32"},
          .schedules = {"gpipe", "1f1b"}}};
  const auto ids = ids_of(options);
  ASSERT_EQ(ids.size(), 2U * 2U * 2U * 3U) << "a schedule is of pp alone";
  EXPECT_THAT(std::vector(ids.begin(), ids.begin() + 4),
      ElementsAre("dp-p3-c3-b64-bf16-mixed", "pp-p3-c3-b64-bf16-mixed-gpipe",
          "pp-p3-c3-b64-bf16-mixed-1f1b", "dp-p2-c2-b64-bf16-mixed"));
}

TEST(WaysGrid, OneProcessHasTheCoresOfNoMorePlacesThanThereAre) {
  EXPECT_THAT(ids_of({.cores = 2, .ways = {.places = {4}, .ways = {"serial", "dp"}}}),
      ElementsAre("dp-p4-c2-b128-32"));
  EXPECT_THAT(ids_of({.cores = 8, .device = "cuda", .ways = {.ways = {"serial", "ddp"}}}),
      ElementsAre("serial-p1-c2-b128-32-cuda", "ddp-p4-c8-b128-32-cuda", "ddp-p2-c4-b128-32-cuda"));
  EXPECT_THROW(ids_of({.cores = 2, .ways = {.places = {1}, .ways = {"dp"}}}), InvalidArgument);
}

TEST(WaysGrid, AllWaysTrainTheSameBatchOnTheirCores) {
  const Study study = make_study({.cores = 2,
      .data = {"mnist:/data"},
      .ways = {.model = "chain", .plugin = "/nets.so", .schedules = {"gpipe"}, .images = 5120}});
  EXPECT_THAT(cell_named(study, "ddp-p2-c2-b128-32").command,
      ElementsAre("train", "--model", "chain", "--plugin", "/nets.so", "--data", "mnist:/data",
          "--batch-size", "64", "--precision", "32", "--max-steps", "40", "--log-interval", "10",
          "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none",
          "--parallel", "ddp", "--nproc-per-node", "2", "--max-restarts", "0"));
  expect_parts(joined_words(cell_named(study, "pp-p2-c2-b128-32-gpipe").command),
      {"--batch-size 128 --precision 32 --max-steps 40 --log-interval 10 ",
          "--parallel pp --places 2 --schedule gpipe"});
  EXPECT_THAT(cell_named(study, "ddp-p2-c2-b128-32").environment, ElementsAre("OMP_NUM_THREADS=1"));
  const StudyCell& both = cell_named(study, "serial-p1-c2-b128-32");
  EXPECT_THAT(both.environment, ElementsAre("OMP_NUM_THREADS=2"));
  EXPECT_EQ(both.places, 1);
  EXPECT_EQ(both.cores, 2);
  for (const StudyCell& cell : study.cells) {
    EXPECT_NO_THROW(cli::parse_train_launch({cell.command.begin() + 1, cell.command.end()}))
        << cell.id;
  }
}

TEST(WaysGrid, ARunHasAQuarterToWarmUp) {
  EXPECT_EQ(run_length(0, 128).steps, 4) << "one step each";
  EXPECT_EQ(run_length(100'000, 128).steps_a_line, 195);
  EXPECT_EQ(run_length(100'000, 128).steps, 4 * 195);
}

TEST(WaysGrid, WhatCannotBeTrainedSaysWhy) {
  StudyOptions options{.cores = 2, .ways = {.batches = {129}}};
  options.ways.refused["pp-p2-c2-b129-32"] = "has one layer";
  const Study study = make_study(options);
  EXPECT_THAT(cell_named(study, "dp-p2-c2-b129-32").not_measurable,
      HasSubstr("129 cannot be divided among 2 replicas"));
  EXPECT_EQ(cell_named(study, "pp-p2-c2-b129-32").not_measurable, "has one layer");
  EXPECT_EQ(cell_named(study, "serial-p1-c1-b129-32").not_measurable, "");
}

TEST(WaysGrid, ReplicasOfStagesAreEveryDivisionOfThePlaces) {
  const StudyOptions options{.cores = 16, .ways = {.places = {1, 2, 4, 8, 9}, .ways = {"ddp+mp"}}};
  EXPECT_THAT(ids_of(options),
      ElementsAre("ddp-mp-p9-s3-c9-b128-32", "ddp-mp-p8-s2-c8-b128-32", "ddp-mp-p8-s4-c8-b128-32",
          "ddp-mp-p4-s2-c4-b128-32", "ddp-mp-p2-s2-c2-b128-32"));
  const Study study = make_study(options);
  EXPECT_THAT(cell_named(study, "ddp-mp-p2-s2-c2-b128-32").not_measurable,
      HasSubstr("2 places cannot be several replicas of several stages each, as 4, 6 or 8 can"));
  EXPECT_THAT(cell_named(study, "ddp-mp-p9-s3-c9-b128-32").not_measurable,
      HasSubstr("128 cannot be divided among 3 replicas"));
  EXPECT_EQ(cell_named(study, "ddp-mp-p8-s4-c8-b128-32").not_measurable, "");
}

TEST(WaysGrid, ReplicasAreProcessesWithTheirStagesAsPlaces) {
  const Study study = make_study({.cores = 8,
      .ways = {.places = {8}, .ways = {"ddp+pp"}, .schedules = {"1f1b", "interleaved"}}});
  const StudyCell& plain = cell_named(study, "ddp-pp-p8-s4-c8-b128-32-1f1b");
  expect_parts(joined_words(plain.command),
      {"--batch-size 64 ",
          "--parallel ddp+pp --nproc-per-node 2 --max-restarts 0 --places 4 --stages 4 "
          "--schedule 1f1b"});
  EXPECT_THAT(joined_words(cell_named(study, "ddp-pp-p8-s2-c8-b128-32-interleaved").command),
      HasSubstr("--nproc-per-node 4 --max-restarts 0 --places 2 --stages 4 --schedule interl"));
  for (const StudyCell& cell : study.cells) {
    auto launched = cli::parse_train_launch({cell.command.begin() + 1, cell.command.end()});
    const int ranks = launched.options.workers;
    EXPECT_NO_THROW(cli::read_train_flags(
        launched.given, {.world_size = ranks, .local_world_size = ranks, .unix_time = 0}))
        << cell.id;
  }
  const auto is_stages = [](const Setting& each) { return each == Setting{"stages", "4"}; };
  EXPECT_TRUE(std::any_of(plain.settings.begin(), plain.settings.end(), is_stages));
}

TEST(WaysRequest, IsFoundAgainInTheFolder) {
  const lockstep::testing::TemporaryFolder folder;
  BenchRequest request{.studies = {"ways"}, .options = {.cores = 2}};
  request.options.ways = {.model = "chain",
      .plugin = "/nets.so",
      .batches = {1, 2},
      .places = {2},
      .ways = {"pp"},
      .precisions = {"16-mixed"},
      .schedules = {"gpipe"},
      .train_flags = {"--opt", "sgd"},
      .images = 77,
      .refused = {{"a", "why"}}};
  write_request(folder.path(), request);
  const BenchRequest found = *read_request(folder.path());
  EXPECT_EQ(to_json(found.options.ways), to_json(request.options.ways));
  BenchRequest same = request;
  same.options.ways.images = 0;  // as it is asked for
  check_continues(found, same);
  same.options.ways.batches = {1};
  EXPECT_THAT([&] { check_continues(found, same); },
      ThrowsMessage<InvalidArgument>(HasSubstr("--batch 1,2")));
  same.options.ways.batches = {1, 2};
  same.options.ways.train_flags = {"--opt", "adamw"};
  EXPECT_THAT([&] { check_continues(found, same); },
      ThrowsMessage<InvalidArgument>(HasSubstr("-- --opt adamw' now")));
}

TEST(WaysFlags, MakeTheGrid) {
  const auto command = parse_bench({"ways", "--model", "chain", "--plugin", "nets.so", "--batch",
      "64,128", "--places", "1,2", "--ways", "serial,pp", "--precision", "32,bf16-mixed",
      "--schedule", "gpipe", "--budget", "90s", "--data", "any:folder"});
  const WaysRequest& ways = command->request.options.ways;
  EXPECT_EQ(ways.text(),
      concat("--model chain --plugin ", (std::filesystem::current_path() / "nets.so").string(),
          " --batch 64,128 --ways serial,pp --precision 32,bf16-mixed --places "
          "1,2 --schedule gpipe"));
  EXPECT_EQ(command->budget, 90);
  EXPECT_THAT(command->request.options.data.back(), HasSubstr("any:/"));
  EXPECT_EQ(parse_bench({"ways"})->budget, 600);
  EXPECT_EQ(parse_bench({"ways", "--model", "vgg11"})->request.options.data,
      std::vector<std::string>{"mock"});
  EXPECT_EQ(parse_bench({"pipeline"})->budget, 0);
  EXPECT_EQ(parse_bench({"pipeline", "--budget", "1h"})->budget, 3600);
}

void expect_refused(const std::string& line, const std::string& text) {
  EXPECT_THAT([&] { parse_bench(split("ways " + line, ' ')); },
      ThrowsMessage<InvalidArgument>(HasSubstr(text)))
      << line;
}

TEST(WaysFlags, ABadValueIsNamedBesideThoseThatThereAre) {
  expect_refused("--precision 32,bf16-mxied",
      "--precision must be one of 32, bf16-mixed, 16-mixed, auto: bf16-mxied; did you mean "
      "bf16-mixed?");
  expect_refused("--schedule 1f1b,gpip",
      "--schedule must be one of sequential, gpipe, 1f1b, interleaved, zero-bubble: gpip; did you");
  expect_refused("--schedule gpipe --ways ddp,dp",
      "--schedule gpipe is for pp and ddp+pp, which are not among --ways ddp,dp");
  expect_refused(
      "--ways ddp,pq", "--ways must be one of serial, dp, ddp, fsdp, mp, pp, ddp+mp, ddp+pp: pq");
  expect_refused("--ways ,ddp", "--ways must be WAY,...: ',ddp'");
  expect_refused("--batch 64,,128",
      "--batch must be whole numbers from 1 to 100000000, separated "
      "by commas: 64,,128");
  expect_refused("--batch 64k", "separated by commas: 64k");
  expect_refused("--places 1025", "--places must be whole numbers from 1 to 1024");
  expect_refused("--places two", "separated by commas: two");
  expect_refused("--nodes a,b", "--nodes a,b is for ddp-scaling and scale-out");
}

TEST(WaysFlags, ThoseAfterDashesGoToEveryTraining) {
  const auto command =
      parse_bench(split("ways --batch 64 -- --image-size=64 --opt sgd --pretrained w.pth", ' '));
  const StudyOptions& options = command->request.options;
  const std::string file = (std::filesystem::current_path() / "w.pth").string();
  EXPECT_THAT(options.ways.train_flags,
      ElementsAre("--image-size", "64", "--opt", "sgd", "--pretrained", file));
  EXPECT_THAT(options.ways.text(), HasSubstr("--precision 32 -- --image-size 64 --opt sgd"));
  const Study study = make_study(options);
  EXPECT_THAT(study.title, HasSubstr("trained with --image-size 64 --opt sgd"));
  for (const StudyCell& cell : study.cells) {
    EXPECT_THAT(joined_words(cell.command), HasSubstr("--image-size 64 --opt sgd")) << cell.id;
    EXPECT_EQ(cell.settings.back().name, "train_flags");
  }
  EXPECT_TRUE(parse_bench({"ways", "--"})->request.options.ways.train_flags.empty());
}

TEST(WaysFlags, WhatTheBenchItselfSetsIsRefusedAfterDashes) {
  expect_refused("-- --batch-size 4", "--batch-size cannot follow --: give --batch before --");
  expect_refused("-- -b 4", "--batch-size cannot follow --");
  expect_refused("-- --opt sgd --epochs 4", "--epochs cannot follow --: the bench sets it itself");
  expect_refused("-- --output=x", "--output cannot follow --");
  expect_refused("-- --opt sdg", "--opt must be one of adam, sgd, adamw: sdg");
  expect_refused("-- --image-sze 64", "no flag --image-sze; did you mean --image-size?");
  expect_refused("-- --lr 0", "--lr must be a number above 0: 0");
  expect_refused("-- --help", "lockstep help train");
  EXPECT_THAT(
      [] {
        parse_bench({"pipeline", "--", "--opt", "sgd"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("are for lockstep bench ways")));
  const auto plain = parse_bench({"ways"});
  for (const StudyCell& cell : make_study(plain->request.options).cells) {
    for (auto word = cell.command.begin(); word != cell.command.end(); ++word) {
      if (!word->starts_with("--")) continue;
      EXPECT_THAT(
          [&] {
            parse_bench({"ways", "--", *word, *(word + 1)});
          },
          ThrowsMessage<InvalidArgument>(HasSubstr(*word + " cannot follow --")));
    }
  }
}

TEST(WaysFlags, AreForThatStudyAlone) {
  const std::vector<std::vector<std::string>> wrong{{"pipeline", "--model", "toy"},
      {"all", "--batch", "4"}, {"ways", "--full"}, {"ways", "--quick"}, {"ways", "--batch", "0"},
      {"ways", "--batch", "4,4"}, {"ways", "--ways", "ring"}, {"ways", "--device", "cpu,cuda"},
      {"ways", "--places", "1", "--ways", "dp"}, {"ways", "--budget", "soon"}};
  for (const auto& words : wrong) EXPECT_THROW(parse_bench(words), InvalidArgument) << words.back();
  const auto all = parse_bench({"all"});
  for (const std::string& study : all->request.studies) EXPECT_NE(study, "ways");
}

constexpr const char* kOne = "serial-p1-c1-b128-32";
constexpr const char* kBoth = "serial-p1-c2-b128-32";
constexpr const char* kDp = "dp-p2-c2-b128-32";
constexpr const char* kDdp = "ddp-p2-c2-b128-32";
constexpr const char* kPp = "pp-p2-c2-b128-32";

const StudyOptions kTwoCores{.cores = 2, .ways = {.images = 5120}};

page::Section section(const RatesByCell& rates, const StudyOptions& options = kTwoCores) {
  const Study study = make_study(options);
  page::Section made = study.report(study, made_rates(study, rates));
  testing::expect_whole(made, "ways");
  return made;
}

const RatesByCell kFiveRounds{{kOne, {100, 101, 99, 100, 100}}, {kBoth, {110, 111}},
    {kDp, {150, 152, 149, 150, 151}}, {kDdp, {180, 182, 178, 180, 181}}, {kPp, {90, 91}}};

TEST(WaysAnswer, NamesTheFastestHowSureThatIsAndItsCommand) {
  StudyOptions on_mock = kTwoCores;
  on_mock.data = {"mock"};
  const page::Section made = section(kFiveRounds, on_mock);
  EXPECT_EQ(made.conclusion.answer,
      "Fastest: ddp on 2 places, 180 images/s, 1.80 (1.80 to 1.81) times as fast as one process on "
      "1 core. It is 1.20 (1.19 to 1.20) times as fast as the next, dp on 2 places: surely "
      "faster.");
  EXPECT_EQ(made.conclusion.remarks.front(),
      "Train with: OMP_NUM_THREADS=1 lockstep train --model mnist-small --batch-size 64 "
      "--precision 32 --parallel ddp --nproc-per-node 2");
  expect_parts(text_of(made),
      {"2.0 % was waiting for data and 20 % for other ranks in "
       "backward. A larger batch needs less of that",
          "It makes 90 % of what its cores would", "left out of later rounds: 2 of 5."});
}

TEST(WaysAnswer, SaysWhenItIsNotSure) {
  EXPECT_THAT(section({{kDp, {150, 152}}, {kDdp, {180, 182}}}).conclusion.answer,
      HasSubstr("dp on 2 places: faster in every round."));
  const auto close = section({{kDp, {150, 182}}, {kDdp, {180, 152}}, {kOne, {1, 1}}});
  EXPECT_THAT(close.conclusion.answer, HasSubstr("no significant difference."));
  EXPECT_THAT(section({{kDp, {150}}, {kDdp, {180}}}).conclusion.answer,
      HasSubstr("only one round, not conclusive."));
  EXPECT_THAT(section({{kDp, {150}}}).conclusion.answer,
      HasSubstr("No other cell has a number to compare it with."));
}

TEST(WaysAnswer, OfEqualsItTakesTheSimplest) {
  const std::vector<double> ddp{100, 101, 100, 102, 100}, dp{99.8, 99, 99.6, 100.5, 99.5};
  const page::Section made = section({{kOne, {70, 70}}, {kDp, dp}, {kDdp, ddp}, {kPp, {50, 50}}});
  EXPECT_THAT(made.conclusion.answer,
      HasSubstr("It is 1.00 (1.00 to 1.02) times as fast as the next, dp on 2 places: equal within "
                "3 %. Practically as fast (equal within 3 %): dp on 2 places. Take dp on 2 places: "
                "it is one process."));
  EXPECT_THAT(made.conclusion.remarks.front(), HasSubstr("--parallel dp --places 2"));
  expect_parts(
      text_of(made), {"lies between 0.97 and 1.03.", "clearly slower, or equal, were left out"});
  EXPECT_THAT(section({{kBoth, ddp}, {kDp, dp}}).conclusion.answer,
      HasSubstr("dp on 2 places. None of them is simpler: take the fastest."));
  const auto all = section({{kOne, dp}, {kBoth, dp}, {kDp, dp}, {kDdp, ddp}});
  EXPECT_THAT(
      all.conclusion.answer, HasSubstr("one process on 1 core; one process on 2 cores; dp on "
                                       "2 places. Take one process on 1 core: it takes "
                                       "fewer cores."));
  EXPECT_THAT(all.conclusion.remarks.front(), HasSubstr("OMP_NUM_THREADS=1 lockstep train"));
}

TEST(WaysAnswer, HasNoEqualsThatAreNotSure) {
  const auto four = section({{kDp, {100, 100, 100, 100}}, {kDdp, {100, 101, 100, 101}}});
  EXPECT_THAT(four.conclusion.answer, Not(HasSubstr("equal")));
  const auto faster = section({{kDp, {98, 98, 98, 98, 98}}, {kDdp, {100, 100, 100, 100, 100}}});
  EXPECT_THAT(faster.conclusion.answer, HasSubstr("equal within 3 %. Practically as fast"))
      << "the difference is sure, but small";
  EXPECT_THAT(faster.conclusion.answer, Not(HasSubstr("surely")));
}

TEST(WaysAnswer, DoesNotInventWhatTheRunsDidNotRecord) {
  const auto serial = text_of(section({{kOne, {100}}, {kBoth, {200}}}));
  expect_parts(serial, {"Fastest: one process on 2 cores", "2.0 % was waiting for data."});
  EXPECT_THAT(serial, Not(HasSubstr("places wait")));
  EXPECT_THAT(text_of(section({{kDp, {100}}})),
      HasSubstr("was waiting for data. What its places wait for each other is not recorded."));
}

TEST(WaysAnswer, NamesWhatWasLeftOutAndWhatDidNotFit) {
  StudyOptions options = kTwoCores;
  options.ways.refused[kPp] = "a net of one layer cannot be cut";
  const std::string text = text_of(section({{kOne, {100}}, {kBoth, {90}}}, options));
  expect_parts(text, {"Not measured in the time that there was: dp on 2 places; ddp on 2 places.",
                         "Left out: pp on 2 places: a net of one layer cannot be cut"});
  EXPECT_EQ(section({}).conclusion.answer, "No cell has a number and cores of its own.");
}

TEST(WaysAnswer, IsNeverOneThatHadNoCoresOfItsOwn) {
  const StudyOptions crowded{.cores = 2, .ways = {.places = {1, 4}, .images = 5120}};
  const auto made = section({{kOne, {100}}, {"ddp-p4-c2-b128-32", {200}}}, crowded);
  EXPECT_THAT(made.conclusion.answer, HasSubstr("Fastest: one process on 1 core"));
  EXPECT_THAT(text_of(made), HasSubstr("4 places are more than there are cores"));
}

TEST(WaysTable, NamesReplicasAndStagesAndThatTheyHadNoCores) {
  const StudyOptions crowded{
      .cores = 2, .ways = {.places = {1, 2, 4}, .ways = {"serial", "ddp+pp"}}};
  const auto made = section({{kOne, {100}}, {"ddp-pp-p4-s2-c2-b128-32", {90}}}, crowded);
  EXPECT_THAT(row_text(testing::table_of(made, "ways-rates"), "ddp+pp on 4 places (2 x 2 stages)|"),
      HasSubstr("|oversubscribed|"));
  expect_parts(text_of(made), {"Left out: ddp+pp on 2 places (1 x 2 stages): 2 places cannot "
                               "be several replicas",
                                  "4 places are more than there are cores"});
}

TEST(WaysAnswer, TellsBatchesAndPrecisionsApart) {
  StudyOptions options = kTwoCores;
  options.ways.batches = {128, 256};
  options.ways.ways = {"serial", "ddp"};
  for (const char* id : {"ddp-p2-c2-b128-32", "serial-p1-c2-b128-32"})
    options.ways.refused[id] = "one reason";
  const auto made = section(
      {{kOne, {100}}, {"ddp-p2-c2-b256-32", {190}}, {"serial-p1-c1-b256-32", {105}}}, options);
  EXPECT_THAT(
      made.conclusion.answer, HasSubstr("Fastest: ddp on 2 places, batch 256, 190 images/s, "
                                        "1.81 times as fast as one process on 1 core, batch 256."));
  EXPECT_THAT(text_of(made),
      HasSubstr(
          "Left out: one process on 2 cores, batch 128; ddp on 2 places, batch 128: one reason"));
}

TEST(WaysTable, ComparesWithOneProcessOnTheFewestCores) {
  const page::Section made = section(kFiveRounds);
  const page::Table& table = testing::table_of(made, "ways-rates");
  expect_rows(table,
      {"one process on 1 core|1|128|32|100|99.0 to 101|5|-|-|-|the others are compared with it|",
          "ddp on 2 places|2|128|32|180|178 to 182|5|1.80|1.80 to 1.81|90 %|-|"});
  EXPECT_THAT(row_text(table, "one process on 2 cores|"), HasSubstr("|1.10|1.10 to 1.10|55 %|"));
  const page::Table& costs = testing::table_of(made, "ways-costs");
  expect_rows(costs,
      {"ddp on 2 places|2|128|32|2.0 %|20 %|300|-|", "dp on 2 places|2|128|32|2.0 %|-|300|-|"});
}

TEST(WaysStudy, GoesOnUntilTheFastestIsSureOrForTheRoundsAsked) {
  const Study study = make_study(kTwoCores);
  EXPECT_TRUE(study.begins_in_order);
  const auto worth = [&](const RatesByCell& rates) {
    return study.worth(cell_results(study, made_rates(study, rates)));
  };
  EXPECT_THAT(worth({{kOne, {1}}}), ElementsAre(true, true, true, true, true));
  EXPECT_THAT(worth(kFiveRounds), ElementsAre(false, false, false, false, false));
  RatesByCell tied = kFiveRounds;
  tied[kDp] = tied[kDdp];
  EXPECT_THAT(worth(tied), ElementsAre(false, false, false, false, false));
  StudyOptions three = kTwoCores;
  three.rounds = 3;
  EXPECT_EQ(make_study(three).rounds, 3);
  EXPECT_FALSE(make_study(three).worth);
}

using WaysValues = testing::RunFolder;

TEST_F(WaysValues, LeaveOutTheStepsThatWarmUp) {
  RunSummary summary;
  summary.peak_memory_bytes = 1000;
  write(summary);
  for (const auto& [step, rate] : {std::pair(2, 1.0), {4, 10.0}, {6, 30.0}})
    add({.elapsed = 1,
        .epoch = 1,
        .step = step,
        .split = "train",
        .scores = {.loss = 1},
        .samples_per_s = rate,
        .step_ms = 100,
        .data_ms = 5,
        .comm_ms = 20});
  const SampleValues values = values_of({.way = "ddp"}, run(), 2);
  expect_values(values, {{kRate, 20}, {kDataShare, 0.05}, {kCommShare, 0.2}});
  EXPECT_EQ(values.at(kPeakMemory), 1000);
  EXPECT_FALSE(values_of({.way = "pp"}, run(), 2).contains(kCommShare));
  EXPECT_THROW(values_of({}, run(), 6), DataError);
}

}  // namespace
}  // namespace lockstep::bench::ways
