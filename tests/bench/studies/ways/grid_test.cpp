#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

#include "bench/cli/bench_flags.h"
#include "bench/studies/bench_request.h"
#include "bench/studies/catalogue.h"
#include "bench/studies/ways/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::ways {
namespace {

using cli::parse_bench;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> ids_of(const StudyOptions& options) {
  const Study study = make_study(options);
  check_study(study);
  std::vector<std::string> ids;
  for (const StudyCell& cell : study.cells) ids.push_back(cell.id);
  return ids;
}

std::string joined_words(const std::vector<std::string>& words) { return joined(words, " "); }

const StudyCell& cell_named(const Study& study, const std::string& id) {
  for (const StudyCell& cell : study.cells)
    if (cell.id == id) return cell;
  throw InvalidArgument("no cell " + id);
}

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
  EXPECT_THAT(joined_words(cell_named(study, "pp-p2-c2-b128-32-gpipe").command),
      HasSubstr("--batch-size 128 --precision 32 --max-steps 40 --log-interval 10 "));
  EXPECT_THAT(joined_words(cell_named(study, "pp-p2-c2-b128-32-gpipe").command),
      HasSubstr("--parallel pp --places 2 --schedule gpipe"));
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
  EXPECT_THAT(joined_words(plain.command), HasSubstr("--batch-size 64 "));
  EXPECT_THAT(joined_words(plain.command),
      HasSubstr("--parallel ddp+pp --nproc-per-node 2 --max-restarts 0 --places 4 --stages 4 "
                "--schedule 1f1b"));
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
      "--ways ddp,pq", "--ways must be one of serial, dp, ddp, mp, pp, ddp+mp, ddp+pp: pq");
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

}  // namespace
}  // namespace lockstep::bench::ways
