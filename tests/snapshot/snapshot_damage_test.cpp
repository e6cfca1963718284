#include <algorithm>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/formats/weights/mutation.h"
#include "tests/snapshot/saved_snapshot.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Dice;

/// A snapshot in memory: the bytes of each file by its name.
using Image = std::map<std::string, std::string>;

Image image_of(const fs::path& snapshot) {
  Image image;
  for (const auto& entry : fs::directory_iterator(snapshot)) {
    image[entry.path().filename().string()] = testing::contents(entry.path());
  }
  return image;
}

std::string& any_file(Image& image, Dice& dice) {
  return std::next(image.begin(), static_cast<std::ptrdiff_t>(dice.below(image.size())))->second;
}

// The damages. Each may by chance change nothing.

void flip_bit(Image& image, const Image&, Dice& dice) {
  std::string& bytes = any_file(image, dice);
  char& byte = bytes[dice.below(bytes.size())];
  byte = static_cast<char>(byte ^ (1 << dice.below(8)));
}

void truncate(Image& image, const Image&, Dice& dice) {
  std::string& bytes = any_file(image, dice);
  bytes.resize(dice.below(bytes.size() + 1));
}

void extend(Image& image, const Image&, Dice& dice) {
  std::string& bytes = any_file(image, dice);
  const std::string more = dice.below(2) == 0 ? std::string(1 + dice.below(600), '\0') : bytes;
  bytes.insert(dice.below(2) == 0 ? bytes.size() : dice.below(bytes.size()), more);
}

void swap_files(Image& image, const Image&, Dice& dice) {
  std::swap(any_file(image, dice), any_file(image, dice));
}

void take_file_of_other(Image& image, const Image& other, Dice& dice) {
  Image copy = other;
  if (dice.below(2) == 0) {
    any_file(image, dice) = any_file(copy, dice);
  } else {
    const auto file = std::next(copy.begin(), static_cast<std::ptrdiff_t>(dice.below(copy.size())));
    image[file->first] = file->second;
  }
}

void rename_file(Image& image, const Image&, Dice& dice) {
  static const std::vector<std::string> kNames{
      "state.json", "manifest.json", "model.safetensors", "rank-00001.safetensors", "x", ".hidden"};
  auto node = image.extract(
      std::next(image.begin(), static_cast<std::ptrdiff_t>(dice.below(image.size()))));
  image[dice.one_of(kNames)] = node.mapped();
}

void drop_file(Image& image, const Image&, Dice& dice) {
  image.erase(std::next(image.begin(), static_cast<std::ptrdiff_t>(dice.below(image.size()))));
}

void add_file(Image& image, const Image&, Dice& dice) {
  image["more-" + std::to_string(dice.below(10))] = any_file(image, dice);
}

/// Swaps two pieces of one file, or of two: what a disk does that mixes up its blocks.
void swap_sections(Image& image, const Image&, Dice& dice) {
  std::string& one = any_file(image, dice);
  std::string& other = dice.below(2) == 0 ? one : any_file(image, dice);
  const std::size_t size = 1 + dice.below(std::min({one.size(), other.size(), std::size_t{64}}));
  const std::size_t from = dice.below(one.size() - size + 1);
  const std::size_t to = dice.below(other.size() - size + 1);
  for (std::size_t i = 0; i < size; ++i) std::swap(one[from + i], other[to + i]);
}

void turn_section(Image& image, const Image&, Dice& dice) {
  std::string& bytes = any_file(image, dice);
  const std::size_t from = dice.below(bytes.size());
  const std::size_t size = dice.below(std::min(bytes.size() - from, std::size_t{64}) + 1);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  std::reverse(begin, begin + static_cast<std::ptrdiff_t>(size));
}

/// Is what a file system leaves of a page that it never wrote.
void clear_section(Image& image, const Image&, Dice& dice) {
  std::string& bytes = any_file(image, dice);
  const std::size_t from = dice.below(bytes.size());
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end(), '\0');
}

void mutate_manifest(Image& image, const Image&, Dice& dice) {
  std::string& text = image["manifest.json"];
  for (std::size_t i = 0; i <= dice.below(3); ++i) {
    testing::mutate_bytes(text, 0, text.size(), dice);
  }
}

/// Changes what the manifest says, and then makes its own digest fit.
void forge_manifest(Image& image, const Image& other, Dice& dice) {
  static const nlohmann::json kOther = nlohmann::json::parse(other.at("manifest.json"));
  auto manifest = nlohmann::ordered_json::parse(image["manifest.json"]);
  auto& files = manifest["files"];
  auto& file = files[dice.below(files.size())];
  auto& second = files[dice.below(files.size())];
  const std::vector<std::function<void()>> changes{
      [&] { std::swap(file["sha256"], second["sha256"]); },
      [&] { std::swap(file["name"], second["name"]); }, [&] { std::swap(file, second); },
      [&] { files.erase(dice.below(files.size())); }, [&] { files.push_back(file); },
      [&] { file["bytes"] = dice.below(300); },
      [&] { file["sha256"] = kOther["files"][dice.below(3)]["sha256"]; },
      [&] { file["name"] = "../step-00000001/" + file["name"].get<std::string>(); },
      [&] { manifest["step"] = dice.below(4); }, [&] { manifest["v"] = dice.below(4); },
      [&] { manifest["libtorch"] = "2.1" + std::to_string(dice.below(10)); },
      [&] { manifest["complete"] = dice.below(2) == 0; },
      [&] { manifest.erase(dice.below(2) == 0 ? "complete" : "files"); }};
  changes[dice.below(changes.size())]();
  image["manifest.json"] = testing::with_true_digest(manifest.dump());
}

struct Damage {
  const char* name;
  void (*apply)(Image&, const Image&, Dice&);
};

constexpr Damage kDamages[] = {{"flip_bit", flip_bit}, {"truncate", truncate}, {"extend", extend},
    {"swap_files", swap_files}, {"take_file_of_other", take_file_of_other},
    {"rename_file", rename_file}, {"drop_file", drop_file}, {"add_file", add_file},
    {"swap_sections", swap_sections}, {"turn_section", turn_section},
    {"clear_section", clear_section}, {"mutate_manifest", mutate_manifest},
    {"forge_manifest", forge_manifest}};

class SnapshotDamageTest : public ::testing::Test {
 protected:
  SnapshotDamageTest() {
    older_ = image_of(testing::save_snapshot(folder_.run(), 1, 1));
    newer_ = image_of(testing::save_snapshot(folder_.run(), 2, 2));
    on_disk_ = newer_;
  }

  /// Makes the newer snapshot consist of these files.
  void put(const Image& image) {
    for (const auto& [name, bytes] : on_disk_) {
      if (!image.contains(name)) fs::remove(newer_path_ / name);
    }
    for (const auto& [name, bytes] : image) {
      const auto found = on_disk_.find(name);
      if (found != on_disk_.end() && found->second == bytes) continue;
      fs::remove(newer_path_ / name);  // ext4 waits for the disk where a file is written over
      std::ofstream(newer_path_ / name, std::ios::binary) << bytes;
    }
    on_disk_ = image;
  }

  /// Returns what a reader would get: the files that the manifest lists, as they are on the disk.
  static Image delivered(const SnapshotChoice& choice) {
    Image image;
    for (const SnapshotFile& file : choice.manifest.files) {
      image[file.name] = testing::contents(choice.path / file.name);
    }
    return image;
  }

  static Image without_manifest(Image image) {
    image.erase("manifest.json");
    return image;
  }

  testing::TemporaryFolder directory_;
  SnapshotFolder folder_{directory_.path() / "run"};
  fs::path newer_path_ = folder_.path() / "step-00000002";
  Image older_, newer_, on_disk_;
};

TEST_F(SnapshotDamageTest, IsNeverAccepted) {
  constexpr int kCases = 10'400;
  Dice dice(20261121);
  std::map<std::string, int> refused;
  std::map<std::string, int> unchanged;
  for (int i = 0; i < kCases; ++i) {
    const Damage& damage = kDamages[static_cast<std::size_t>(i) % std::size(kDamages)];
    SCOPED_TRACE(concat("case ", i, ": ", damage.name));
    Image image = newer_;
    damage.apply(image, older_, dice);
    put(image);
    const SnapshotChoice choice = folder_.newest();
    const bool is_accepted = choice.path == newer_path_;
    ASSERT_EQ(delivered(choice), without_manifest(is_accepted ? newer_ : older_));
    ASSERT_EQ(choice.refused.size(), is_accepted ? 0U : 1U);
    ASSERT_EQ(choice.manifest.step, is_accepted ? 2 : 1);
    // A forged manifest that says the same of the same files is no damage; any other change is one.
    const bool is_same = image == newer_;
    if (is_same || damage.apply != forge_manifest) {
      ASSERT_EQ(is_accepted, is_same);
    }
    ++(is_accepted ? unchanged : refused)[damage.name];
  }
  for (const Damage& damage : kDamages) {
    EXPECT_GT(refused[damage.name], kCases / 13 / 2) << damage.name;
    RecordProperty(damage.name, refused[damage.name]);
  }
}

}  // namespace
}  // namespace lockstep
