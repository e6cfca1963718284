#include "lockstep/snapshot/snapshot_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

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

TEST(SnapshotFiles, AListIsReadOnceItIsWhole) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path list = folder.str() + "/list.json";
  EXPECT_FALSE(read_written_files(list));
  WrittenFile written;
  written.file = {.name = "a", .bytes = 7, .sha256 = "b"};
  written.tensors = {"c"};
  const std::string text = to_json(std::vector<WrittenFile>{written, written});
  for (std::size_t size = 0; size < text.size(); ++size) {
    std::ofstream(list) << text.substr(0, size);
    EXPECT_FALSE(read_written_files(list)) << size;
  }
  std::ofstream(list) << text;
  EXPECT_EQ(read_written_files(list), (std::vector<WrittenFile>{written, written}));
}

TEST(SnapshotFiles, AnIndexSaysWhichPartHasATensor) {
  const auto written = [](const std::string& name, const std::vector<std::string>& tensors) {
    SnapshotFile file;
    file.name = name;
    return WrittenFile{.file = file, .tensors = tensors, .tensor_bytes = 4 * tensors.size()};
  };
  const std::vector<WrittenFile> files{written(snapshot_file_name("model", 0, 2), {"a", "b"}),
      written(snapshot_file_name("model", 1, 2), {"c"}),
      written(snapshot_file_name("optimizer", 0, 2), {}),
      written(snapshot_file_name("model-ema"), {})};
  const auto made = index_files(files);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].name, "model.safetensors.index.json");
  EXPECT_EQ(made[0].text,
      "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
      "    \"a\": \"model-00001-of-00002.safetensors\",\n"
      "    \"b\": \"model-00001-of-00002.safetensors\",\n"
      "    \"c\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
}

}  // namespace
}  // namespace lockstep
