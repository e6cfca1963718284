#include "lockstep/snapshot/snapshot_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

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
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made.begin()->first, "model.safetensors.index.json");
  EXPECT_EQ(made.begin()->second,
      "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
      "    \"a\": \"model-00001-of-00002.safetensors\",\n"
      "    \"b\": \"model-00001-of-00002.safetensors\",\n"
      "    \"c\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
}

// Python would take a part for the whole.
TEST(SnapshotFiles, PartsOfTensorsHaveNoIndex) {
  const auto written = [](int part, bool has_parts) {
    SnapshotFile file;
    file.name = snapshot_file_name("model", part, 2);
    return WrittenFile{.file = file, .tensors = {concat("t", part)}, .has_parts = has_parts};
  };
  const std::vector<WrittenFile> files{written(0, false), written(1, true)};
  EXPECT_TRUE(index_files(files).empty());
  EXPECT_EQ(parse_written_files(to_json(files)), files);
}

}  // namespace
}  // namespace lockstep
