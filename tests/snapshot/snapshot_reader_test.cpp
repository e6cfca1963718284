#include "lockstep/snapshot/snapshot_reader.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <system_error>

#include "tests/comm/group_factory.h"
#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_bits;
using testing::named;
using testing::part_of;
using testing::TemporaryFolder;

TEST(SnapshotChoice, IsTheSameOnAllRanksAndSoAreErrors) {
  const TemporaryFolder folder;
  const fs::path& run = folder.path();
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    EXPECT_TRUE(newest_snapshot(run, world).path.empty());
    SnapshotSaver saver({.run = run}, world);
    for (const std::int64_t step : {1, 2}) saver.save(step, part_of(world, step));
    saver.finish();
    world.barrier().wait();
    if (world.rank() == 0) {
      fs::resize_file(run / "snapshots/step-00000002/rank-00001.safetensors", 10);
    }
    const SnapshotChoice choice = newest_snapshot(run, world);
    EXPECT_EQ(choice.path, run / "snapshots/step-00000001");
    EXPECT_EQ(choice.manifest.step, 1);
    ASSERT_EQ(choice.refused.size(), 1);
    EXPECT_EQ(choice.refused[0].name, "step-00000002");
    EXPECT_EQ(verified_snapshot(choice.path, world).manifest, choice.manifest);
    EXPECT_THROW((void)verified_snapshot(run / "snapshots/step-00000002", world), DataError);
    EXPECT_THROW((void)verified_snapshot(run / "nothing", world), std::system_error);
  });
}

TEST(SnapshotReader, RefusesPartsThatAreNotWhole) {
  const TemporaryFolder folder;
  const auto save = [&](const std::vector<std::string>& files) {
    SnapshotSaver saver({.run = folder.path()}, ProcessGroup());
    SnapshotPart part;
    for (const std::string& file : files)
      part.files[file] = {.tensors = named("weight", torch::ones({2}))};
    saver.save(1, part);
    saver.finish();
    return SnapshotFolder(folder.path()).newest();
  };
  EXPECT_THROW(SnapshotReader{SnapshotChoice{}}, InvalidArgument);
  EXPECT_THROW(SnapshotReader{save({"model-00002-of-00003.safetensors"})}, DataError);
  EXPECT_THROW(
      SnapshotReader(save({"model.safetensors", "model-00001-of-00002.safetensors"})), DataError);
  const SnapshotReader twice(
      save({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
  EXPECT_THROW((void)twice.model(), DataError);
  EXPECT_THROW((void)twice.optimizer(), DataError);
  EXPECT_TRUE(twice.model_ema().is_empty());
}

TEST(SnapshotReader, M3AFileThatShrinksWhileItIsRestoredIsADataError) {
  const TemporaryFolder run;
  SnapshotSaver saver({.run = run.path()}, ProcessGroup());
  saver.save(
      1, {.files = {{"model.safetensors", {.tensors = named("w", torch::ones({100'000}))}}}});
  saver.finish();
  const SnapshotChoice choice = SnapshotFolder(run.path()).newest();
  const SnapshotReader reader(choice);
  const torch::Tensor weight = torch::zeros({100'000});
  const auto restore = [&] {
    restore_tensors(named("w", weight), reader.model(), choice.path.string());
  };
  reader.checked(restore);
  EXPECT_EQ(weight.sum().item<float>(), 100'000);
  const auto message = testing::message_of<DataError>([&] {
    reader.checked([&] {
      const auto tensors = reader.model();
      fs::resize_file(choice.path / "model.safetensors", 4096);
      restore_tensors(named("w", weight), tensors, choice.path.string());
    });
  });
  EXPECT_NE(
      message.find("model.safetensors: offset 4096: another program changed"), std::string::npos)
      << message;
}

TEST(SnapshotReader, ItsTensorsOutliveItAndTheSnapshot) {
  const TemporaryFolder run;
  nn::NamedTensors model("Tensor");
  {
    SnapshotSaver saver({.run = run.path()}, ProcessGroup());
    saver.save(1, part_of(ProcessGroup(), 1));
    saver.finish();
    model = SnapshotReader(SnapshotFolder(run.path()).newest()).model();
    fs::remove_all(fs::path(run.path()) / "snapshots");
  }
  expect_same_bits(model["weight0"], torch::full({100}, 10.0));
}

}  // namespace
}  // namespace lockstep
