// `lockstep train --parallel fsdp`: the bits of ddp, and snapshots from which any way goes on.

#include <cstdint>
#include <filesystem>
#include <gmock/gmock.h>
#include <map>
#include <string>
#include <vector>

#include "tests/process/train/resumable_run.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class TrainSharded : public ShortRuns {
 protected:
  using Tensors = std::map<std::string, std::vector<std::uint8_t>>;

  static Tensors tensors_of(const std::string& path) {
    Tensors tensors;
    const TensorFile file = read_weights(path);
    for (const TensorEntry& entry : file.entries())
      tensors[entry.name].assign(entry.bytes.begin(), entry.bytes.end());
    return tensors;
  }

  static std::string hash(const ResumableRun& run) { return run.summary()["parameters_hash"]; }

  /// Trains by ddp and by fsdp with the same flags; expects the same weights and scores.
  void expect_bits_of_ddp(const std::string& more, const std::string& sharding = "") const {
    const ResumableRun replicated(flags("--parallel ddp " + more)),
        sharded(flags("--parallel fsdp " + sharding + " " + more));
    replicated.complete();
    sharded.complete();
    EXPECT_EQ(hash(sharded), hash(replicated)) << more;
    for (const char* weights : {"model.safetensors", "best.safetensors"})
      EXPECT_EQ(tensors_of(sharded.file(weights)), tensors_of(replicated.file(weights))) << more;
    for (const char* score : {"test_loss", "test_top1"})
      EXPECT_EQ(sharded.summary()[score], replicated.summary()[score]) << more;
  }
};

TEST_F(TrainSharded, HasTheBitsOfDdp) {
  expect_bits_of_ddp("--nproc-per-node 2 --opt adamw --weight-decay-on weights");
  expect_bits_of_ddp("--nproc-per-node 3", "--reshard never");
  expect_bits_of_ddp("--nproc-per-node 2 --checkpoint always");
  expect_bits_of_ddp(
      "--places 2 --precision bf16-mixed --model toy --data mock --limit-train-batches 20");
}

// Of 40 samples 4 ranks have 10 each, of 38 two have 9: with a batch of 9 the others have one more.
TEST_F(TrainSharded, EvaluatesSharesOfUnequalBatches) {
  data_.write(72, 38);
  expect_bits_of_ddp("--nproc-per-node 4 --batch-size 9 --epochs 2");
}

TEST_F(TrainSharded, IsGoneOnFromByAnyWay) {
  const ResumableRun begun(flags("--parallel fsdp --nproc-per-node 2 --model-ema --max-steps 14"));
  begun.complete();
  const auto going_on = [&](const std::string& way, int steps = 30) {
    const ResumableRun run(flags(concat("--model-ema --max-steps ", steps, " ", way)));
    std::filesystem::copy(begun.output(), run.output(), std::filesystem::copy_options::recursive);
    EXPECT_THAT(run.complete().err, HasSubstr("going on from")) << way;
    EXPECT_EQ(run.summary()["steps"], steps) << way;
    return hash(run);
  };
  EXPECT_EQ(going_on("--parallel ddp --nproc-per-node 2"),
      going_on("--parallel fsdp --nproc-per-node 2"));
  for (const char* way : {"fsdp --nproc-per-node 3", "fsdp --nproc-per-node 8", "serial",
           "pp --nproc-per-node 2 --balance count --chunks 2"})
    EXPECT_EQ(going_on(concat("--parallel ", way), 14), hash(begun)) << way;
  EXPECT_EQ(going_on("--parallel fsdp --nproc-per-node 3"),
      going_on("--parallel ddp --nproc-per-node 3"));
  going_on("--parallel pp --nproc-per-node 2 --balance count --chunks 2");
  going_on("--parallel serial");
}

}  // namespace
}  // namespace lockstep::testing
