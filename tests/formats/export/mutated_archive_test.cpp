#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>

#include "tests/formats/export/small_archive.h"
#include "tests/formats/mutated.h"
#include "tests/formats/weights/mutation.h"
#include "tests/formats/weights/zip_bytes.h"

#include "lockstep/formats/export/exported_program.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using testing::Dice;
using testing::ZipPart;
using Bytes = std::vector<std::uint8_t>;
using Json = nlohmann::json;

constexpr const char* kArchives[] = {"conv.pt2", "modes.pt2", "nested.pt2", "programs.pt2"};
constexpr int kMutations = 100;

Bytes bytes_of_archive(const char* name) {
  std::ifstream file(testing::python_archive(name), std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// Reads an archive, or refuses it with a DataError; any other exception fails the test.
bool reads(const Bytes& bytes) {
  return testing::read_within(64 * bytes.size() + (1 << 20), [&] {
    return parse_exported(bytes, "FILE").programs.size();
  }).has_value();
}

std::vector<ZipPart> parts_of(const Bytes& archive) {
  std::vector<ZipPart> parts;
  for (const ZipEntry& entry : read_zip(archive, "FILE"))
    parts.push_back({.name = entry.name, .content = {entry.bytes.begin(), entry.bytes.end()}});
  return parts;
}

std::vector<Json*> values_in(Json& json) {
  std::vector<Json*> values{&json};
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i]->is_structured())
      for (Json& item : *values[i]) values.push_back(&item);
  return values;
}

/// Puts another value, often of another kind, in the place of one.
void replace_value(Json& json, Dice& dice) {
  static const std::vector<Json> kOthers{nullptr, true, 0, 1, -1, 7, INT64_MAX, INT64_MIN, 1e300,
      "", "x", "as_tensor", Json::array(), Json::object(), Json::array({0}), {{"as_int", 1}},
      {{"as_tensor", {{"name", "x"}}}}};
  const std::vector<Json*> values = values_in(json);
  Json& place = *dice.one_of(values);
  const Json other = dice.below(3) == 0 ? Json(*dice.one_of(values)) : dice.one_of(kOthers);
  place = other;
}

class MutatedArchive : public ::testing::TestWithParam<const char*> {};

TEST_P(MutatedArchive, OfWhichBytesChangedIsReadOrRefused) {
  const Bytes archive = bytes_of_archive(GetParam());
  std::mt19937 engine(45);
  for (int i = 0; i < kMutations; ++i) reads(testing::mutated(archive, 4096, engine));
}

TEST_P(MutatedArchive, OfWhichPartsChangedIsReadOrRefused) {
  const std::vector<ZipPart> parts = parts_of(bytes_of_archive(GetParam()));
  Dice dice(46);
  for (int i = 0; i < kMutations; ++i) {
    std::vector<ZipPart> changed = parts;
    std::string& content = changed[dice.below(changed.size())].content;
    for (std::size_t times = 1 + dice.below(3); times > 0; --times)
      testing::mutate_bytes(content, 0, content.size(), dice);
    reads(testing::zip_bytes(changed));
  }
}

TEST_P(MutatedArchive, OfWhichValuesChangedIsReadOrRefused) {
  const std::vector<ZipPart> parts = parts_of(bytes_of_archive(GetParam()));
  Dice dice(47);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::vector<ZipPart> changed = parts;
    ZipPart* part = nullptr;
    while (part == nullptr || !part->name.ends_with(".json"))
      part = &changed[dice.below(changed.size())];
    Json json = Json::parse(part->content);
    replace_value(json, dice);
    part->content = json.dump();
    if (!reads(testing::zip_bytes(changed))) ++refused;
  }
  EXPECT_GT(refused, kMutations / 4);
}

INSTANTIATE_TEST_SUITE_P(Python, MutatedArchive, ::testing::ValuesIn(kArchives));

}  // namespace
}  // namespace lockstep
