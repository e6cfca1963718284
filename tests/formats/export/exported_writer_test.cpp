#include "lockstep/formats/export/exported_writer.h"

#include <cstring>
#include <deque>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "tests/formats/export/small_archive.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/export/exported_program.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::message_of;
using testing::python_archive;
using testing::SmallArchive;

/// Floats that count from `first`.
std::vector<float> counted(std::size_t size, float first) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Weights in memory.
class Weights {
 public:
  Weights& add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values,
      ElementType type = ElementType::kFloat32) {
    const auto& kept = values_.emplace_back(std::move(values));
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(kept.data());
    entries_.push_back({name, type, std::move(shape), {bytes, kept.size() * sizeof(float)}});
    return *this;
  }

  TensorFile file(const std::map<std::string, std::string>& metadata = {}) const {
    return {entries_, metadata, nullptr};
  }

 private:
  std::deque<std::vector<float>> values_;
  std::vector<TensorEntry> entries_;
};

std::vector<float> floats_of(const ExportedProgram& program, const char* name) {
  const TensorEntry& entry = *program.tensors.find(name);
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

std::map<std::string, std::string> zip_parts(const fs::path& archive) {
  const MappedFile file(archive);
  std::map<std::string, std::string> parts;
  for (const ZipEntry& entry : read_zip(file.bytes(), archive.string())) {
    EXPECT_EQ(entry.offset % 64, 0U) << entry.name;
    parts[entry.name].assign(entry.bytes.begin(), entry.bytes.end());
  }
  return parts;
}

class ExportedWriter : public ::testing::Test {
 protected:
  ExportedArchive written(const fs::path& archive, const TensorFile& weights) {
    write_exported(out_, archive, weights, "WEIGHTS");
    return read_exported(out_);
  }

  std::string refusal(const fs::path& archive, const TensorFile& weights) {
    const std::string message =
        message_of<DataError>([&] { write_exported(out_, archive, weights, "WEIGHTS"); });
    EXPECT_FALSE(fs::exists(out_));
    return message;
  }

  fs::path saved(const SmallArchive& archive) {
    return folder_.write("small.pt2", archive.bytes());
  }

  testing::TemporaryFolder folder_;
  fs::path out_ = folder_.path() / "out.pt2";
};

TEST_F(ExportedWriter, BothProgramsGetTheWeightsAndTheRestStays) {
  const auto values = counted(32, 1);
  Weights weights;
  weights.add("embed.weight", {8, 4}, values).add("head.weight", {8, 4}, values);
  const ExportedArchive archive = written(python_archive("programs.pt2"), weights.file());
  ASSERT_EQ(archive.programs.size(), 2U);
  for (const ExportedProgram& program : archive.programs) {
    EXPECT_EQ(floats_of(program, "embed.weight"), values);
    EXPECT_EQ(program.tensors.find("embed.weight")->bytes.data(),
        program.tensors.find("head.weight")->bytes.data());
  }
  auto before = zip_parts(python_archive("programs.pt2")), after = zip_parts(out_);
  for (const char* const changed : {"programs/data/weights/weight_0",
           "programs/data/weights/weight_1", "programs/.data/serialization_id"}) {
    EXPECT_NE(before[changed], after[changed]) << changed;
    before.erase(changed);
    after.erase(changed);
  }
  EXPECT_EQ(before, after);
}

TEST_F(ExportedWriter, KeepsHowTensorsAreLaidOut) {
  Weights weights;
  weights.add("last", {1, 2, 2, 4}, counted(16, 100)).add("view", {2, 2}, {-1, -2, -3, -4});
  const ExportedArchive archive = written(python_archive("nested.pt2"), weights.file());
  EXPECT_EQ(floats_of(archive.programs[0], "last"), counted(16, 100));
  EXPECT_THAT(floats_of(archive.programs[0], "view"), ElementsAreArray({-1, -2, -3, -4}));
  // The view is t()[1:] of 2 x 3 numbers.
  const std::string part = zip_parts(out_).at("nested/data/weights/weight_1");
  std::vector<float> stored(6);
  std::memcpy(stored.data(), part.data(), part.size());
  EXPECT_THAT(stored, ElementsAreArray({0, -1, -3, 3, -2, -4}));
}

TEST_F(ExportedWriter, OneNameOfATiedTensorIsEnough) {
  Weights weights;
  weights.add("head.weight", {8, 4}, counted(32, 5));
  const ExportedArchive archive = written(python_archive("programs.pt2"), weights.file());
  EXPECT_EQ(floats_of(archive.programs[1], "embed.weight"), counted(32, 5));
  EXPECT_NO_THROW(written(python_archive("programs.pt2"),
      weights.file({{"embed.weight", "head.weight"}, {"format", "pt"}})));
}

TEST_F(ExportedWriter, TiedNamesWithOtherValuesAreRefused) {
  Weights weights;
  weights.add("embed.weight", {8, 4}, counted(32, 1)).add("head.weight", {8, 4}, counted(32, 2));
  EXPECT_THAT(refusal(python_archive("programs.pt2"), weights.file()),
      HasSubstr("\n  shares a tensor with another name, but has other values in the file: "
                "embed.weight\n"));
}

TEST_F(ExportedWriter, DifferencesAreRefusedByName) {
  SmallArchive small;
  small.add_weight("b")["path_name"] = "b";
  small.parts["data/weights/b"] = std::string(24, 'b');
  const fs::path archive = saved(small);
  EXPECT_EQ(refusal(archive, Weights().add("w2", {2, 3}, counted(6, 1)).file()),
      concat("WEIGHTS: the weights do not fit ", archive.string(),
          "; nothing was written:\n  missing in the file: w\n  not in the archive: w2\n"
          "take the archive that they were trained with"));
  EXPECT_THAT(refusal(archive, Weights().add("w", {3, 2}, counted(6, 1)).file()),
      HasSubstr("other: w: in the archive (2, 3) float32, in the file (3, 2) float32\n"));
  EXPECT_THAT(
      refusal(archive, Weights().add("w", {2, 3}, counted(12, 1), ElementType::kFloat64).file()),
      HasSubstr("in the archive (2, 3) float32, in the file (2, 3) float64\n"));
}

TEST_F(ExportedWriter, WeightsThatNoProgramReadsMayBeMissing) {
  SmallArchive small;
  small.add_weight("unused")["path_name"] = "unused";
  small.parts["data/weights/unused"] = std::string(24, 'u');
  const fs::path archive = saved(small);
  written(archive, Weights().add("w", {2, 3}, counted(6, 1)).file());
  EXPECT_EQ(zip_parts(out_).at("net/data/weights/unused"), std::string(24, 'u'));
  Weights both;
  both.add("w", {2, 3}, counted(6, 1)).add("unused", {2, 3}, counted(6, 7));
  EXPECT_EQ(floats_of(written(archive, both.file()).programs[0], "unused"), counted(6, 7));
}

TEST_F(ExportedWriter, PickledWeightsStayOutOfReach) {
  SmallArchive small;
  const auto pickled =
      testing::torch_bytes(testing::pickle_of(testing::tensor()), std::string(24, 'p'));
  small.parts["data/weights/weight_0"] = std::string(pickled.begin(), pickled.end());
  small.weight()["use_pickle"] = true;
  EXPECT_THAT(refusal(saved(small), Weights().add("w", {2, 3}, counted(6, 1)).file()),
      HasSubstr("tensor w of program model: is pickled, so that it cannot be replaced"));
}

TEST_F(ExportedWriter, AnArchiveThatIsNoneIsRefused) {
  EXPECT_THAT(refusal(fs::path(LOCKSTEP_EXPORT_DATA) / "make_archives.py", Weights().file()),
      HasSubstr("no zip archive; in Python, torch.export.save writes one"));
}

TEST_F(ExportedWriter, ReplacesTheArchiveItself) {
  const fs::path archive = saved(SmallArchive());
  Weights weights;
  weights.add("w", {2, 3}, counted(6, 1));
  write_exported(archive, archive, weights.file(), "WEIGHTS");
  EXPECT_EQ(floats_of(read_exported(archive).programs[0], "w"), counted(6, 1));
}

}  // namespace
}  // namespace lockstep
