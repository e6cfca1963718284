// Trains the nets of examples/plugin in every way, and gives `lockstep train` plugins that are not
// what they should be.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class Plugin : public ::testing::Test {
 protected:
  TrainedRun run(const std::string& model, const std::string& flags) const {
    return trained_run(concat(data_.flag(), " ", plugin_flag("nets"), "--model ", model,
        " --epochs 2 --seed 3 --opt sgd --lr 0.1 ", flags));
  }

  Ended refused(const std::string& flags) const {
    const TemporaryFolder folder;
    return train(concat(data_.flag(), " --max-steps 1 --output ", folder.file("run"), " ", flags));
  }

  // The plugin is refused with code 2 for one reason, by one rank and by two.
  std::string refusal(const std::string& flags) const {
    const Ended alone = refused(flags).with_code(2),
                both = refused(flags + " --nproc-per-node 2").with_code(2);
    EXPECT_EQ(count_of("plugin", both.err), count_of("plugin", alone.err)) << both.err;
    return alone.err;
  }

  IdxFiles data_{64, 16};
};

TEST_F(Plugin, AChainTrainsInEveryWayAsInOneProcess) {
  const TrainedRun alone = run("chain", "--batch-size 32");
  EXPECT_LT(alone.losses().back(), alone.losses().front());
  EXPECT_EQ(alone.last.count("0.weight"), 1U) << "names as in Python's Sequential";
  for (const std::string way : {"--parallel mp", "--parallel mp --nproc-per-node 2"}) {
    const TrainedRun cut = run("chain", "--batch-size 32 " + way);
    EXPECT_EQ(cut.summary["parameters_hash"], alone.summary["parameters_hash"]) << way;
  }
  const std::string one_batch_norm = "--sync-batch-norm --batch-size 16 --nproc-per-node 2";
  expect_near(run("chain", one_batch_norm).losses(), alone.losses(), 4);
}

TEST_F(Plugin, AnyModuleTrainsByDpAndDdp) {
  for (const std::string way : {"--parallel serial --batch-size 32",
           "--parallel dp --batch-size 16", "--nproc-per-node 2 --batch-size 16"}) {
    const TrainedRun trained = run("mnist-example", way);
    EXPECT_LT(trained.losses().back(), trained.losses().front()) << way;
    EXPECT_EQ(trained.last.count("conv1.weight"), 1U) << way;
  }
}

TEST_F(Plugin, AModuleThatIsNoChainCannotBeCut) {
  for (const char* when : {"", " --dry-run"}) {
    const Ended ended = refused(plugin_flag("nets") + "--model mnist-example --parallel pp" + when);
    EXPECT_EQ(ended.code(), 2) << when;
    EXPECT_THAT(ended.err, HasSubstr("torch::nn::Sequential")) << when;
  }
}

// A text whose next byte follows from those before it, of 13 whole batches.
TEST_F(Plugin, ALanguageModelTrainsInEveryWay) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 64 + 1 + 8 * (13 * 32 - 1)) text += "one two three four five six seven\n";
  text.resize(64 + 1 + 8 * (13 * 32 - 1));
  for (const char* name : {"train.txt", "test.txt"}) std::ofstream(folder.file(name)) << text;
  const std::string flags = concat("--data text:", folder.str(), " ", plugin_flag("text"),
      "--model byte-transformer --max-steps 30 --seed 3 ");
  const TrainedRun alone = trained_run(flags + "--batch-size 32");
  EXPECT_LT(alone.losses().back(), 0.5 * alone.losses().front());
  for (const std::string way : {"--parallel dp --batch-size 16",
           "--nproc-per-node 2 --batch-size 16", "--parallel pp --chunks 2 --batch-size 32"})
    expect_near(trained_run(flags + way).losses(), alone.losses(), 30);
}

TEST_F(Plugin, ItsRunGoesOnWhereItWasStopped) {
  const TemporaryFolder folder;
  const std::string flags = concat("--output ", folder.file("run"), " --resume auto");
  const TrainedRun whole = run("mnist-example", "--batch-size 16 --nproc-per-node 2");
  const std::string common = concat(data_.flag(), " ", plugin_flag("nets"),
      "--model mnist-example --seed 3 --opt sgd --lr 0.1 --batch-size 16 --nproc-per-node 2 ",
      "--log-interval 1 ", flags);
  EXPECT_EQ(train(common + " --epochs 1").code(), 0);
  const Ended ended = train(common + " --epochs 2 --json").with_code(0);
  EXPECT_THAT(ended.out, HasSubstr(whole.summary["parameters_hash"].get<std::string>()));
}

TEST_F(Plugin, ATiedWeightIsSavedAndGoesOnInEveryWay) {
  for (const std::string way : {"--parallel serial", "--parallel dp", "--parallel pp",
           "--nproc-per-node 2 --shard-optimizer"}) {
    const TemporaryFolder folder;
    const std::string common = concat(plugin_flag("layers"), data_.flag(),
        " --model tied --seed 3 --opt adam --batch-size 16 ", way);
    const TrainedRun whole = trained_run(common + " --epochs 2");
    EXPECT_EQ(whole.last.at("2.a"), whole.last.at("2.b")) << way;
    const std::string output = concat(" --resume auto --output ", folder.file("run"));
    EXPECT_EQ(train(common + " --epochs 1" + output).code(), 0) << way;
    const Ended ended = train(common + " --epochs 2 --json" + output).with_code(0);
    EXPECT_THAT(ended.out, HasSubstr(whole.summary["parameters_hash"].get<std::string>())) << way;
  }
}

TEST_F(Plugin, WhatItsOptimizerOrItsFilesCannotTakeIsKnownBeforeTheFirstStep) {
  for (const char* when : {"", " --dry-run"}) {
    const std::string model = plugin_flag("layers") + "--model ";
    for (const char* optimizer : {"adam", "adamw", "sgd", "sgd --momentum 0 --weight-decay 0.1"}) {
      const Ended ended = refused(concat(model, "sparse --opt ", optimizer, when)).with_code(2);
      EXPECT_THAT(ended.err, HasSubstr("the gradients of 0.words.weight are sparse")) << optimizer;
    }
    for (const char* flags : {"complex128", "complex64 --nproc-per-node 2"}) {
      const Ended ended = refused(concat(model, flags, " --opt sgd --momentum 0", when));
      EXPECT_EQ(ended.code(), 2) << ended.err;
      EXPECT_THAT(ended.err, HasSubstr("train: 0.weight is ")) << flags;
    }
  }
  EXPECT_EQ(refused(plugin_flag("layers") + "--model complex64 --opt sgd --momentum 0").code(), 0);
  const TrainedRun sparse = run("sparse", concat(plugin_flag("layers"), "--momentum 0"));
  EXPECT_LT(sparse.losses().back(), sparse.losses().front());
}

TEST_F(Plugin, ItsRunIsEvaluatedAsItWasMeasured) {
  const TemporaryFolder folder;
  const std::string model = concat(plugin_flag("nets"), "--model mnist-example");
  ASSERT_EQ(
      train(concat(data_.flag(), " ", model, " --epochs 1 --output ", folder.file("run"))).code(),
      0);
  const auto record = json_lines(folder.file("run/metrics.jsonl")).back();
  EXPECT_EQ(record["split"], "val");
  const std::string weights = concat("--weights ", folder.file("run/model.safetensors"), " ");
  for (const std::string& flags :
      {concat("--run ", folder.file("run")), concat(weights, data_.flag(), " ", model)}) {
    const Ended ended = run_command(words(concat("eval --json ", flags))).with_code(0);
    EXPECT_EQ(nlohmann::json::parse(ended.out)["loss"], record["loss"]) << flags;
  }
}

TEST_F(Plugin, WhatIsNoPluginIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("text.so")) << "no library";
  EXPECT_THAT(refusal("--plugin /nowhere/x.so"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal("--plugin " + folder.file("text.so")), HasSubstr("cannot be loaded"));
  EXPECT_THAT(refusal(plugin_flag("empty")),
      HasSubstr("it has no LOCKSTEP_MODEL, LOCKSTEP_DATA, LOCKSTEP_LOSS or LOCKSTEP_TASK"));
  EXPECT_THAT(refusal(plugin_flag("older")), HasSubstr("compiled for plugin 0, LibTorch 1.0"));
  EXPECT_THAT(refusal(plugin_flag("unbound")), HasSubstr("lockstep_nobody_has_this"));
}

// Stash and Pop are the program's: the plugin links nothing of ours.
TEST_F(Plugin, ASkipConnectionTrainsInOneStageAndAcrossTwo) {
  const auto trained = [&](const std::string& way) {
    return trained_run(concat(data_.flag(), " ", plugin_flag("layers"),
        "--model skip --epochs 2 --opt sgd --lr 0.1 --batch-size 32 ", way));
  };
  const TrainedRun alone = trained("");
  EXPECT_LT(alone.losses().back(), alone.losses().front());
  const TrainedRun cut = trained("--parallel mp --balance count");
  EXPECT_EQ(cut.summary["parameters_hash"], alone.summary["parameters_hash"]);
}

TEST_F(Plugin, AParameterThatIsNotUsedNamesTheFlagWithWhichItTrains) {
  const std::string net =
      plugin_flag("layers") + "--model half-used --batch-size 16 --nproc-per-node 2 ";
  const Ended ended = refused(net);
  EXPECT_NE(ended.code(), 0);
  EXPECT_THAT(ended.err, HasSubstr("left_out.weight"));
  EXPECT_THAT(ended.err, HasSubstr("--find-unused-parameters"));
  refused(net + "--find-unused-parameters").with_code(0);
}

TEST_F(Plugin, NetsThatCannotBeTrainedAreRefused) {
  EXPECT_THAT(refusal(plugin_flag("nets") + "--model chian"), HasSubstr("mnist-example, chain"));
  EXPECT_THAT(refusal(plugin_flag("twice")), HasSubstr("a name is taken or empty: toy"));
  const std::string bad = plugin_flag("bad");
  EXPECT_THAT(refusal(bad + "--model throws"), HasSubstr("cannot be made: no weights here"));
  EXPECT_THAT(refusal(bad + "--model throws-a-number"), HasSubstr("no std::exception"));
  EXPECT_THAT(refusal(bad + "--model empty"), HasSubstr("is an empty module"));
  EXPECT_THAT(refusal(bad + "--model wrong-shape"), HasSubstr("must return scores of [64, 10]"));
  EXPECT_THAT(refusal(bad + "--model views"), HasSubstr("views calls view() on a tensor with"));
  refused(bad + "--model not-a-number").with_code(6);
}

TEST_F(Plugin, DataThatAreNotWholeEndItWithCodeThree) {
  const auto refusal_of_data = [&](const std::string& flags) {
    return refused(flags).with_code(3).err;
  };
  EXPECT_THAT(refusal_of_data(plugin_flag("text") + "--data text:/nowhere"),
      HasSubstr("cannot read /nowhere/train.txt"));
  EXPECT_THAT(refusal_of_data(plugin_flag("bad") + "--data no-class"),
      HasSubstr("no-class train 0 has the label 10; labels must be 0 to 9"));
  EXPECT_THAT(refusal_of_data(plugin_flag("bad") + "--data no-samples"),
      HasSubstr("no-samples train needs samples"));
  EXPECT_EQ(refused(plugin_flag("bad") + "--data no-class --augment crop-flip").code(), 2);
}

}  // namespace
}  // namespace lockstep::testing
