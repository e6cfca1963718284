#include "lockstep/snapshot/snapshot_names.h"

#include <gtest/gtest.h>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(SnapshotNames, AreReadAsTheyAreWritten) {
  EXPECT_EQ(snapshot_name(1200), "step-00001200");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t step :
      {std::int64_t{0}, std::int64_t{99'999'999}, std::int64_t{100'000'000}, most}) {
    EXPECT_EQ(step_of(snapshot_name(step)), step);
    EXPECT_EQ(step_of_aside(aside_name(step)), step);
    EXPECT_TRUE(is_leftover(aside_name(step)));
  }
  EXPECT_THROW(snapshot_name(-1), InvalidArgument);
  EXPECT_NE(aside_name(1), aside_name(1));
}

TEST(SnapshotNames, AreNoOthers) {
  for (const char* name :
      {"", "step-", "step-1", "step-0000001", "step-000000001", "step-+0000001", "step--0000001",
          "step-00000001 ", "step-0000000a", "Step-00000001", "step-9223372036854775808",
          "step-00000001.old", ".step-00000001", "step-00000001/../step-00000002"}) {
    EXPECT_FALSE(step_of(name)) << name;
  }
}

TEST(SnapshotNames, OfLeftoversAreOnlyOurs) {
  for (const char* name : {".step-00000001.abcdef", ".LATEST.17.part", ".best.0.part"}) {
    EXPECT_TRUE(is_leftover(name)) << name;
  }
  for (const char* name :
      {"", ".", "step-00000001", ".step-00000001", ".step-00000001.", ".step-00000001.abcde",
          ".step-00000001.abcdefg", ".step-00000001.abc/ef", ".step-1.abcdef", "LATEST", ".LATEST",
          ".LATEST..part", ".LATEST.1a.part", ".LATEST.1.partx", ".other.1.part", ".nfs0000001"}) {
    EXPECT_FALSE(is_leftover(name)) << name;
  }
}

TEST(SnapshotNames, OfFilesStayInTheFolder) {
  for (const char* name : {"a", "model-00001-of-00002.safetensors", "state.json", "A_b.c-9"}) {
    EXPECT_TRUE(is_file_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", ".a", "a/b", "/a", "../a", "a\\b", "a b", "a\n",
           "\xc3\xa9", "manifest.json"}) {
    EXPECT_FALSE(is_file_name(name)) << name;
  }
  EXPECT_FALSE(is_file_name(std::string_view("a\0b", 3)));
  EXPECT_TRUE(is_file_name(std::string(200, 'a')));
  EXPECT_FALSE(is_file_name(std::string(201, 'a')));
}

TEST(SnapshotFiles, NamesPartsAsPythonDoes) {
  EXPECT_EQ(snapshot_file_name("model"), "model.safetensors");
  EXPECT_EQ(snapshot_file_name("model-ema", 0, 2), "model-ema-00001-of-00002.safetensors");
  EXPECT_EQ(snapshot_file_name("optimizer", 11, 12), "optimizer-00012-of-00012.safetensors");
  EXPECT_EQ(snapshot_rank_file_name(3), "rank-00003.safetensors");
  EXPECT_THROW((void)snapshot_file_name("model", 2, 2), InvalidArgument);
}

TEST(SnapshotFiles, TakesNamesApart) {
  for (const auto& [group, part, parts] :
      {SnapshotPartName{"model", 0, 1}, {"model-ema", 1, 2}, {"optimizer", 0, 12}, {"m", 0, 1}}) {
    const auto name = parse_snapshot_file_name(snapshot_file_name(group, part, parts));
    ASSERT_TRUE(name);
    EXPECT_EQ(name->group, group);
    EXPECT_EQ(name->part, part);
    EXPECT_EQ(name->parts, parts);
  }
  EXPECT_EQ(parse_snapshot_file_name("rank-00003.safetensors")->group, "rank-00003");
  EXPECT_FALSE(parse_snapshot_file_name("state.json"));
  EXPECT_FALSE(parse_snapshot_file_name(".safetensors"));
  // Not parts of anything: the names stay whole.
  for (const char* stem :
      {"m-00003-of-00002", "m-00000-of-00002", "m-00001-of-00001", "m-0001-of-00002"})
    EXPECT_EQ(parse_snapshot_file_name(std::string(stem) + ".safetensors")->group, stem);
}

TEST(SnapshotFiles, OneReplicaWritesForAll) {
  const auto first = snapshot_file_names({.rank = 0, .replica = 0, .ranks = 2});
  EXPECT_EQ(first.model, "model.safetensors");
  EXPECT_EQ(first.optimizer, "optimizer.safetensors");
  const auto second = snapshot_file_names({.rank = 1, .replica = 1, .ranks = 2});
  EXPECT_EQ(second.model + second.model_ema + second.optimizer, "");
  EXPECT_EQ(second.rank, "rank-00001.safetensors");
}

TEST(SnapshotFiles, StagesWriteTheirPartsAndOwnersTheirShares) {
  const auto stage = snapshot_file_names({.rank = 1, .stage = 1, .stages = 2, .ranks = 4});
  EXPECT_EQ(stage.model, "model-00002-of-00002.safetensors");
  EXPECT_EQ(stage.model_ema, "model-ema-00002-of-00002.safetensors");
  EXPECT_EQ(stage.optimizer, "optimizer-00002-of-00002.safetensors");
  const auto share = snapshot_file_names(
      {.rank = 3, .replica = 1, .stage = 1, .stages = 2, .ranks = 4, .sharded_optimizer = true});
  EXPECT_EQ(share.model, "");
  EXPECT_EQ(share.optimizer, "optimizer-00004-of-00004.safetensors");
}

}  // namespace
}  // namespace lockstep
