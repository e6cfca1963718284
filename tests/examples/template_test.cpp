// The template, built as a separate project, trains by each of its three scripts; where the
// global batch is the same, so are the losses.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "run_example.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {
namespace {

using testing::Ended;
using testing::numbers_in;
using testing::run_line;
using testing::TemporaryFolder;

constexpr const char* kScripts = LOCKSTEP_TEMPLATE "/scripts/";
constexpr const char* kProgram = "export TRAIN=" LOCKSTEP_TEMPLATE_BUILD "/train\n";

/// The numbers that the program prints of its epochs.
struct Epochs {
  std::vector<double> number, train_loss, test_loss, accuracy, top5;
};

Epochs epochs_of(const Ended& ended) {
  return {numbers_in(ended.output, "epoch (\\d+): [0-9.]+ s, "),
      numbers_in(ended.output, "train loss ([0-9.]+)"),
      numbers_in(ended.output, "test loss ([0-9.]+)"),
      numbers_in(ended.output, "accuracy ([0-9.]+)"), numbers_in(ended.output, "top-5 ([0-9.]+)")};
}

class Template : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new TemporaryFolder;
    const auto drawn = run_line(
        concat("lockstep data synthesize cifar100 ", data(), " --train 256 --test 64 --seed 1"));
    ASSERT_EQ(drawn.status, 0) << drawn.output;
  }
  static void TearDownTestSuite() { delete folder; }

  static std::string data() { return folder->file("data"); }

  /// Returns the flags of a run whose ranks take `batch` images each.
  static std::string flags(const std::string& run, int epochs, int batch) {
    return concat(" --data ", data(), " --output ", folder->file(run), " --epochs ", epochs,
        " --lr 0.01 --batch-size ", batch, " ");
  }

  static Ended single_device(const std::string& flags) {
    return run_line(concat(kProgram, kScripts, "train_single_device.sh", flags));
  }
  static Ended single_node(const std::string& flags) {
    return run_line(concat(kProgram, "NPROC_PER_NODE=2 ", kScripts, "train_single_node.sh", flags));
  }

  /// Runs the script of several nodes once for each of two nodes, at once, as on two hosts.
  static Ended two_nodes(const std::string& flags) {
    const net::ReservedPort port;
    const std::string settings =
        concat("NNODES=2 MASTER_ADDR=127.0.0.1 NPROC_PER_NODE=1 MASTER_PORT=", port.number(),
            " NODE_RANK=");
    const std::string script = concat(" ", kScripts, "train_several_nodes.sh", flags);
    return run_line(concat(kProgram, concat(settings, 0, script, "& first=$!\n"),
        concat(settings, 1, script, "|| { kill $first; exit 1; }\n"), "wait $first"));
  }

  static const Epochs& alone() {
    static const Epochs kEpochs = epochs_of(single_device(flags("alone", 2, 32)));
    return kEpochs;
  }

  /// Expects two epochs with the losses of one device.
  static void expect_as_alone(const Ended& ended) {
    ASSERT_EQ(ended.status, 0) << ended.output;
    const Epochs epochs = epochs_of(ended);
    ASSERT_THAT(epochs.number, ::testing::ElementsAre(1, 2)) << ended.output;
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      EXPECT_NEAR(epochs.train_loss.at(epoch), alone().train_loss.at(epoch), 5e-4) << ended.output;
      EXPECT_NEAR(epochs.test_loss.at(epoch), alone().test_loss.at(epoch), 5e-4) << ended.output;
      EXPECT_NEAR(epochs.accuracy.at(epoch), alone().accuracy.at(epoch), 0.02) << ended.output;
    }
  }

  static TemporaryFolder* folder;
};

TemporaryFolder* Template::folder = nullptr;

TEST_F(Template, OneDeviceLearns) {
  ASSERT_THAT(alone().number, ::testing::ElementsAre(1, 2));
  ASSERT_EQ(alone().top5.size(), 2U);
  EXPECT_NEAR(alone().train_loss[0], 4.6, 0.2) << "100 classes, nothing learnt yet";
  EXPECT_LT(alone().train_loss[1], alone().train_loss[0]);
  EXPECT_GE(alone().top5[1], alone().accuracy[1]);
  EXPECT_TRUE(std::filesystem::exists(folder->path() / "alone" / "model.safetensors"));
}

TEST_F(Template, TwoDevicesOfANodeHaveTheLossesOfOne) {
  expect_as_alone(single_node(flags("node", 2, 16)));
}

TEST_F(Template, TwoNodesHaveTheLossesOfOne) {
  expect_as_alone(two_nodes(flags("nodes", 2, 16)));
  expect_as_alone(two_nodes(flags("nodes-gloo", 2, 16) + "--backend gloo"));
}

TEST_F(Template, ARunGoesOnWhereItStopped) {
  const auto first = single_node(flags("resumed", 1, 16));
  ASSERT_EQ(first.status, 0) << first.output;
  const auto whole = single_node(flags("whole", 2, 16));
  const auto second = single_node(flags("resumed", 2, 16));
  ASSERT_EQ(second.status, 0) << second.output;
  const Epochs epochs = epochs_of(second);
  ASSERT_THAT(epochs.number, ::testing::ElementsAre(2)) << second.output;
  EXPECT_EQ(epochs.train_loss.at(0), epochs_of(whole).train_loss.at(1));
  EXPECT_EQ(epochs.test_loss.at(0), epochs_of(whole).test_loss.at(1));
}

TEST_F(Template, TrainsInBfloat16) {
  const auto ended = single_device(flags("bf16", 1, 32) + "--precision bf16-mixed");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const Epochs epochs = epochs_of(ended);
  ASSERT_EQ(epochs.train_loss.size(), 1U) << ended.output;
  EXPECT_NEAR(epochs.train_loss[0], alone().train_loss[0], 0.02);
  EXPECT_NE(epochs.train_loss[0], alone().train_loss[0]) << "nothing was rounded";
}

// A stand-in for torchrun shows what it is given.
TEST_F(Template, TheLauncherMayBeTorchrun) {
  const std::string program = folder->file("torchrun");
  std::ofstream(program) << "#!/bin/sh\necho \"$*\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string torchrun = concat("export LAUNCHER=", program, " TRAIN=train\n");
  const auto node =
      run_line(concat(torchrun, "NPROC_PER_NODE=4 ", kScripts, "train_single_node.sh --epochs 3"));
  EXPECT_EQ(node.output, "--standalone --nproc-per-node 4 --no-python train --epochs 3\n");
  const auto nodes =
      run_line(concat(torchrun, "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=node0 ", kScripts,
          "train_several_nodes.sh --epochs 3"));
  EXPECT_EQ(nodes.output,
      "--nnodes 2 --node-rank 1 --master-addr node0 --master-port 29500 --nproc-per-node auto "
      "--no-python train --epochs 3\n");
}

TEST_F(Template, NamesWhatIsMissing) {
  const auto nodes = run_line(concat(kScripts, "train_several_nodes.sh"));
  EXPECT_NE(nodes.status, 0);
  EXPECT_THAT(nodes.output, ::testing::HasSubstr("say how many nodes take part: NNODES=2"));
  const auto data = single_device(" --data " + folder->file("none"));
  EXPECT_EQ(data.status, 3) << data.output;
  EXPECT_THAT(data.output, ::testing::HasSubstr("binary version of CIFAR-100"));
  EXPECT_EQ(single_device(" --epoch 3").status, 2);
}

// Every file of the project is named.
TEST_F(Template, TheReadmeListsItsFiles) {
  const std::string readme = testing::contents(LOCKSTEP_TEMPLATE "/README.md");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_TEMPLATE)) {
    if (!entry.is_regular_file() || entry.path().filename().string().front() == '.') continue;
    const std::string name =
        std::filesystem::relative(entry.path(), LOCKSTEP_TEMPLATE).replace_extension();
    if (name == "README") continue;
    EXPECT_THAT(readme, ::testing::HasSubstr(concat("`", name))) << name;
  }
}

}  // namespace
}  // namespace lockstep
