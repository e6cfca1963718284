#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/export/exported_program.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/snapshot/pending_snapshot.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

class Convert : public ::testing::Test {
 protected:
  Convert() {
    const std::vector<TensorEntry> entries{
        {"net.b", ElementType::kUint8, {2}, std::span(bytes_).first(2)},
        {"net.a", ElementType::kFloat64, {}, bytes_}};
    write_weights(input_, entries);
    write_weights(path("in.safetensors"), entries, {{"format", "pt"}, {"note", "x"}});
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  /// Runs the verb and gives what it printed.
  static std::string output_of(const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(convert(arguments), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  template <typename Exception>
  static std::string refusal(const std::vector<std::string>& arguments) {
    return testing::message_of<Exception>([&] { convert(arguments); });
  }

  testing::TemporaryFolder directory_;
  std::vector<std::uint8_t> bytes_{1, 2, 3, 4, 5, 6, 7, 8};
  std::string input_ = path("in.pt");
};

TEST_F(Convert, SaysHowManyTensorsAndBytes) {
  const std::string out = path("out.safetensors");
  EXPECT_EQ(output_of({input_, out}), out + ": 2 tensors, 10 bytes\n");
  const TensorFile file = read_safetensors(out);
  EXPECT_EQ(file.entries().front().name, "net.b");
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
}

TEST_F(Convert, PrintsOneJsonObject) {
  const auto object =
      nlohmann::json::parse(output_of({"--json", path("in.safetensors"), path("out.pth")}));
  EXPECT_EQ(object["v"], 1);
  EXPECT_EQ(object["input"], path("in.safetensors"));
  EXPECT_EQ(object["output"], path("out.pth"));
  EXPECT_EQ(object["tensors"], 2);
  EXPECT_EQ(object["bytes"], 10);
  EXPECT_EQ(object["metadata_left_out"], (nlohmann::json{"format", "note"}));
}

TEST_F(Convert, SaysWhatMetadataItLeavesOut) {
  EXPECT_THAT(output_of({path("in.safetensors"), path("out.pt")}),
      HasSubstr("left out, since PyTorch files cannot hold metadata: format note\n"));
  output_of({path("in.safetensors"), path("out.safetensors")});
  EXPECT_EQ(read_safetensors(path("out.safetensors")).metadata().at("note"), "x");
}

TEST_F(Convert, TakesAPart) {
  EXPECT_THAT(output_of({input_, path("out.pt"), "--only", "net"}), HasSubstr("2 tensors"));
  const TensorFile file = tensors_of(read_torch_file(path("out.pt")));
  EXPECT_THAT(file.find("a")->bytes, ::testing::ElementsAreArray(bytes_));
  EXPECT_THAT(refusal<InvalidArgument>({input_, path("x.pt"), "--only", "ne"}),
      HasSubstr("no tensor's name begins with ne."));
}

TEST_F(Convert, NeverWritesOverAFileUnlessForced) {
  const std::string out = path("in.safetensors");
  EXPECT_EQ(refusal<InvalidArgument>({input_, out}),
      "convert: " + out + " already exists; --force overwrites it");
  EXPECT_EQ(read_safetensors(out).metadata().size(), 2U);
  output_of({input_, out, "--force"});
  EXPECT_EQ(read_safetensors(out).metadata().size(), 1U);
  std::filesystem::create_symlink("nowhere", path("link.pt"));
  EXPECT_THAT(refusal<InvalidArgument>({input_, path("link.pt")}), HasSubstr("already exists"));
}

TEST_F(Convert, ConvertsAFileInItsPlace) {
  output_of({input_, input_, "--force", "--only", "net"});
  EXPECT_NE(tensors_of(read_torch_file(input_)).find("a"), nullptr);
}

TEST_F(Convert, RefusesExtensionsAndFilesThatItDoesNotKnow) {
  EXPECT_THAT(refusal<InvalidArgument>({input_, path("out.npz")}),
      HasSubstr("the extension \".npz\" says no format"));
  EXPECT_THAT(refusal<DataError>({path("none.pt"), path("out.pt")}), HasSubstr("cannot be opened"));
  EXPECT_THAT(refusal<InvalidArgument>({input_}), HasSubstr("OUT is required"));
  EXPECT_FALSE(std::filesystem::exists(path("out.npz")));
}

TEST_F(Convert, NamesTheFlagThatTakesAPart) {
  const std::string checkpoint = LOCKSTEP_WEIGHTS_DATA "/checkpoint.pt";
  EXPECT_THAT(refusal<DataError>({checkpoint, path("out.pt")}),
      StartsWith(concat("convert: ", checkpoint,
          ": take a part that holds tensors alone: --only \"model\" (7 tensors); ")));
  EXPECT_THAT(refusal<DataError>({checkpoint, path("out.pt"), "--only", "optimizer"}),
      HasSubstr(": --only \"optimizer.state\" (12 tensors); "));
  EXPECT_FALSE(std::filesystem::exists(path("out.pt")));
}

TEST_F(Convert, PutsTheWeightsOfARunIntoAProgram) {
  const fs::path run = directory_.path() / "run";
  fs::create_directory(run);
  const std::string program = LOCKSTEP_EXPORT_DATA "/programs.pt2", out = path("out.pt2");
  EXPECT_THAT(refusal<DataError>({run.string(), program, "-o", out}),
      StartsWith(run.string() + ": has neither best.safetensors nor model.safetensors; "));
  const std::vector<std::uint8_t> last(128, 1), best(128, 2);
  for (const auto& [name, bytes] :
      {std::pair("model.safetensors", last), {"best.safetensors", best}}) {
    write_weights(run / name,
        std::vector<TensorEntry>{{"embed.weight", ElementType::kFloat32, {8, 4}, bytes}});
    EXPECT_EQ(
        output_of({run.string(), program, "--force", "-o", out}), out + ": 1 tensors, 128 bytes\n");
    EXPECT_THAT(read_exported(out).programs[1].tensors.find("head.weight")->bytes,
        ::testing::ElementsAreArray(bytes));
  }
  EXPECT_THAT(
      refusal<InvalidArgument>({run.string(), program, "-o", out}), HasSubstr("already exists"));
  EXPECT_THAT(refusal<DataError>({input_, program, "--force", "-o", out}),
      StartsWith("convert: " + input_ + ": the weights do not fit " + program));
}

TEST_F(Convert, AProgramNeedsAnOutput) {
  for (const std::vector<std::string>& more :
      {std::vector<std::string>{}, {"-o", path("out.pt")}}) {
    std::vector<std::string> arguments{input_, "net.pt2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(refusal<InvalidArgument>(arguments),
        "convert: net.pt2 is a program to put the weights into; name the file with both, such as "
        "-o trained.pt2");
  }
  EXPECT_EQ(refusal<InvalidArgument>({input_, path("out.pt"), "-o", path("out.pt2")}),
      "convert: --output is for weights in a program, and " + path("out.pt") + " is no .pt2");
}

TEST_F(Convert, ExplainsItself) {
  EXPECT_THAT(output_of({"--help"}), HasSubstr("Usage: lockstep convert IN OUT"));
}

/// Saves a snapshot of two ranks, of which each has a part of the tensor `w`.
fs::path saved_parts(const fs::path& run, std::span<const std::uint8_t> bytes) {
  auto pending = PendingSnapshot::begin(SnapshotFolder(run), 5);
  SnapshotManifest manifest{
      .step = 5, .libtorch = "2.15.0", .lockstep = {}, .has_parts = true, .files = {}};
  for (const std::int64_t begin : {0, 3}) {
    const std::int64_t end = begin == 0 ? 3 : 8;
    const std::vector<TensorEntry> entries{{"w", ElementType::kUint8, {end - begin},
        bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))}};
    const TensorRanges ranges{{"w", {.whole = {2, 4}, .begin = begin, .end = end}}};
    const auto write = [&](ByteSink& sink) {
      write_safetensors(sink, entries, {{kTensorParts, to_json(ranges)}});
    };
    manifest.files.push_back(
        pending.write(snapshot_file_name("model", begin == 0 ? 0 : 1, 2), write));
  }
  return pending.commit(manifest);
}

TEST_F(Convert, MakesWholeWeightsOfASnapshotInParts) {
  const fs::path snapshot = saved_parts(path("run"), bytes_);
  const std::string out = path("whole.safetensors");
  EXPECT_EQ(output_of({snapshot.string() + "/", out}), out + ": 1 tensors, 8 bytes\n");
  const TensorFile file = read_safetensors(out);
  EXPECT_THAT(file.find("w")->shape, ElementsAre(2, 4));
  EXPECT_THAT(file.find("w")->bytes, ::testing::ElementsAreArray(bytes_));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
}

TEST_F(Convert, RefusesPartsAloneAndOtherFormatsOfASnapshot) {
  const fs::path snapshot = saved_parts(path("run"), bytes_);
  EXPECT_THAT(refusal<InvalidArgument>({snapshot.string(), path("x.pt")}),
      HasSubstr("become a .safetensors; convert that further"));
  EXPECT_THAT(refusal<DataError>({(snapshot / "model-00001-of-00002.safetensors").string(),
                  path("x.safetensors")}),
      HasSubstr("holds parts of tensors"));
  fs::resize_file(snapshot / "model-00002-of-00002.safetensors", 20);
  EXPECT_THROW(convert({snapshot.string(), path("x.safetensors")}), DataError);
  EXPECT_FALSE(fs::exists(path("x.safetensors")));
}

}  // namespace
}  // namespace lockstep::cli
