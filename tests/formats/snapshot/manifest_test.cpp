#include "lockstep/snapshot/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/snapshot/manifest_text.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kHash(64, 'a');

SnapshotManifest example() {
  return {.step = 1200,
      .libtorch = "2.15.0",
      .lockstep = "0.1.0",
      .files = {{"model.safetensors", 104, kHash}, {"state.json", 0, std::string(64, '0')}}};
}

/// Reads the example with one part of its text replaced, and the digest made to fit.
std::string refusal(const std::string& part, const std::string& other) {
  std::string text = to_json(example());
  const std::size_t place = text.find(part);
  EXPECT_NE(place, std::string::npos) << part;
  text.replace(place, part.size(), other);
  const std::string message =
      testing::message_of<DataError>([&] { parse_manifest(testing::with_true_digest(text), "m"); });
  EXPECT_THAT(message, StartsWith("m: ")) << text;
  return message;
}

TEST(Manifest, IsReadAsItIsWritten) {
  const std::string text = to_json(example());
  EXPECT_THAT(
      text, StartsWith(R"({"v":1,"step":1200,"libtorch":"2.15.0","lockstep":"0.1.0","files":[)"));
  EXPECT_EQ(parse_manifest(text, "m"), example());
  EXPECT_EQ(testing::with_true_digest(text), text);
}

TEST(Manifest, OfANewerLockstepSaysSo) {
  EXPECT_THAT(refusal(R"("v":1)", R"("v":2)"), HasSubstr("newer Lockstep"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":2,"more":[{}])"), HasSubstr("newer Lockstep"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":0)"), HasSubstr("no version 0"));
  EXPECT_THAT(refusal(R"("v":1)", R"("v":-1)"), HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"("v":1,)", ""), HasSubstr("v must be there"));
}

TEST(Manifest, MustBeCompleteJsonOfItsOwnKeys) {
  EXPECT_THAT(refusal("true", "false"), HasSubstr("never finished"));
  EXPECT_THAT(refusal("true", "1"), HasSubstr("complete must be true"));
  EXPECT_THAT(refusal(R"(,"complete":true)", ""), HasSubstr("complete must be there"));
  EXPECT_THAT(refusal(R"("step":1200,)", ""), HasSubstr("step must be there"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":1200,"x":0)"), HasSubstr("a key too many"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":1,"step":1200)"), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":[[[[[]]]]])"), HasSubstr("within each other"));
  EXPECT_THAT(refusal(R"("step":1200)", R"("step":)"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("2.15.0", "\xff"), HasSubstr("not JSON"));
}

TEST(Manifest, NeedsWholeNumbersAndTexts) {
  for (const char* step : {"-1", "1.5", "1e3", "\"1\"", "null", "9223372036854775808", "1e999"}) {
    EXPECT_NE(refusal("1200", step), "") << step;
    EXPECT_NE(refusal("104", step), "") << step;
  }
  EXPECT_THAT(refusal(R"("2.15.0")", "2"), HasSubstr("must be a text"));
}

TEST(Manifest, ListsFilesOfTheFolderOnly) {
  for (const char* name :
      {"../x", "a/b", "/x", "", ".", "..", "manifest.json", ".x", "a\\u0000b"}) {
    EXPECT_THAT(refusal("state.json", name), HasSubstr("not one that a snapshot")) << name;
  }
  EXPECT_THAT(refusal("state.json", "model.safetensors"), HasSubstr("listed twice"));
  EXPECT_THAT(refusal(kHash, kHash + "a"), HasSubstr("files[0].sha256 must be 64"));
  EXPECT_THAT(refusal(kHash, std::string(64, 'A')), HasSubstr("files[0].sha256 must be 64"));
  EXPECT_THAT(refusal(R"("bytes":104,)", ""), HasSubstr("files[0].bytes must be there"));
  EXPECT_THAT(refusal(R"("bytes":104,)", R"("bytes":104,"x":1,)"), HasSubstr("a key too many"));
  const std::string text = to_json(example());
  const std::size_t list = text.find('[');
  EXPECT_THAT(
      refusal(text.substr(list, text.find(']') - list + 1), "[]"), HasSubstr("at least one file"));
}

TEST(Manifest, GuardsItself) {
  const std::string text = to_json(example());
  for (std::size_t place = 0; place < text.size(); ++place) {
    for (const int bit : {0, 3, 5}) {
      std::string changed = text;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(changed, "m"), DataError) << changed;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, place), "m"), DataError);
  }
  for (const std::string& changed : {text + "\n", text + " ", " " + text, "\xef\xbb\xbf" + text}) {
    EXPECT_THROW(parse_manifest(changed, "m"), DataError) << changed;
  }
}

TEST(Manifest, HasAnEnd) {
  SnapshotManifest manifest = example();
  manifest.libtorch = std::string(kMostManifestBytes, 'x');
  EXPECT_THROW(to_json(manifest), InvalidArgument);
  EXPECT_THROW(parse_manifest(std::string(kMostManifestBytes + 1, ' '), "m"), DataError);
  EXPECT_THROW(parse_manifest(std::string(kMostManifestBytes, '['), "m"), DataError);
  EXPECT_THROW(parse_manifest("", "m"), DataError);
}

TEST(Manifest, IsNotWrittenOfNonsense) {
  const auto refused = [](const auto& change) {
    SnapshotManifest manifest = example();
    change(manifest);
    EXPECT_THROW(to_json(manifest), InvalidArgument);
  };
  refused([](SnapshotManifest& manifest) { manifest.step = -1; });
  refused([](SnapshotManifest& manifest) { manifest.files.clear(); });
  refused([](SnapshotManifest& manifest) { manifest.files[0].name = "../x"; });
  refused([](SnapshotManifest& manifest) { manifest.files[0].name = manifest.files[1].name; });
  refused([](SnapshotManifest& manifest) { manifest.files[0].sha256 = "abc"; });
  refused([](SnapshotManifest& manifest) { manifest.libtorch = "\xff"; });
}

}  // namespace
}  // namespace lockstep
