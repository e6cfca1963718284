#include "lockstep/formats/weights/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "tests/formats/weights/expected_tensors.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names(const TensorFile& file) {
  std::vector<std::string> result;
  for (const TensorEntry& entry : file.entries()) result.push_back(entry.name);
  return result;
}

TEST(WeightFile, IsKnownByItsContentWhateverItsName) {
  const testing::TemporaryFolder directory;
  const auto torch =
      directory.write("a.safetensors", testing::file_bytes(testing::python_file("types.pt")));
  const auto safetensors =
      directory.write("a.pt", testing::file_bytes(testing::python_file("types.safetensors")));
  const TensorFile of_torch = read_weights(torch);
  EXPECT_EQ(of_torch.entries().size(), 19U);
  const TensorFile of_safetensors = read_weights(safetensors);
  EXPECT_EQ(of_safetensors.entries().size(), 22U);
  EXPECT_THROW(read_weights(testing::python_file("legacy.pt")), DataError);
  EXPECT_THROW(read_weights(directory.write("empty", {})), DataError);
}

TEST(WeightFile, IsWrittenAsItsExtensionSays) {
  const testing::TemporaryFolder directory;
  const TensorFile nested = read_weights(testing::python_file("nested.pt"));
  for (const char* name : {"a.safetensors", "a.pt", "a.pth", "a.bin"}) {
    write_weights(directory.path() / name, nested.entries());
    EXPECT_EQ(names(read_weights(directory.path() / name)), names(nested));
    EXPECT_EQ(weight_format_of_content(directory.path() / name), weight_format_of_extension(name));
  }
  EXPECT_THROW(write_weights(directory.path() / "a.npz", nested.entries()), InvalidArgument);
  EXPECT_THROW(write_weights(directory.path() / "a", nested.entries()), InvalidArgument);
  EXPECT_THROW(
      write_weights(directory.path() / "b.pt", nested.entries(), {{"k", "v"}}), InvalidArgument);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 4);
}

// safetensors.torch.save_model() keeps one name of tied weights.
TEST(WeightFile, KeepsTiedNamesInAPart) {
  const testing::TemporaryFolder directory;
  const std::vector<std::uint8_t> bytes(4, 1);
  const std::vector<TensorEntry> entries{{"net.embed.weight", ElementType::kUint8, {4}, bytes},
      {"other", ElementType::kUint8, {4}, bytes}};
  const auto path = directory.path() / "a.safetensors";
  write_weights(path, entries,
      {{"net.head.weight", "net.embed.weight"}, {"net.side.weight", "other"}, {"format", "pt"}});
  const TensorFile part = read_weights(path, "net");
  EXPECT_THAT(
      names(part), ::testing::UnorderedElementsAre("embed.weight", "head.weight", "side.weight"));
  EXPECT_EQ(part.find("head.weight")->bytes.data(), part.find("embed.weight")->bytes.data());
  EXPECT_THAT(part.metadata(), ::testing::ElementsAre(::testing::Pair("format", "pt")));
}

// As when another program copies over it: the pages are gone.
TEST(WeightFile, M3OneThatShrinksGivesAnErrorAndNoFile) {
  const testing::TemporaryFolder directory;
  const std::vector<std::uint8_t> bytes(1 << 20, 1);
  const std::vector<TensorEntry> entries{{"a", ElementType::kUint8, {1 << 20}, bytes}};
  for (const char* input : {"in.safetensors", "in.pt"}) {
    for (const char* output : {"out.safetensors", "out.pt"}) {
      const auto path = directory.path() / input;
      write_weights(path, entries);
      const auto size = std::filesystem::file_size(path);
      const TensorFile file = read_weights(path);
      std::filesystem::resize_file(path, 1000);
      EXPECT_EQ(
          testing::message_of<DataError>([&] { write_weights(directory.path() / output, file); }),
          concat(path.string(),
              ": offset 1000: another program changed the file while it was read, "
              "from ",
              size, " to 1000 bytes; try again when it is complete"));
      EXPECT_EQ(directory.names(), std::vector<std::string>{input});
      std::filesystem::remove(path);
    }
  }
}

TEST(WeightFile, GivesAPartOfEitherKind) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "a.safetensors";
  const TensorFile nested = read_weights(testing::python_file("nested.pt"));
  write_weights(path, nested.entries());
  for (const auto& file : {path, testing::python_file("nested.pt")}) {
    EXPECT_EQ(names(read_weights(file, "a")), (std::vector<std::string>{"b.c"}));
    EXPECT_EQ(names(read_weights(file, "list.1")), (std::vector<std::string>{"x"}));
    EXPECT_THROW(read_weights(file, "lis"), InvalidArgument);
    EXPECT_THROW(read_weights(file, "7"), InvalidArgument);
  }
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { read_weights(path, "none"); }),
      HasSubstr("no tensor's name begins with none. (names begin with: a, list)"));
}

// A loop over the entries of a temporary file would read memory that is gone.
template <typename File>
concept GivesEntries = requires(File file) {
  std::forward<File>(file).entries();
};
static_assert(GivesEntries<const TensorFile&>);
static_assert(!GivesEntries<TensorFile> && !GivesEntries<const TensorFile>);

TEST(TensorFile, RefusesANameThatComesTwice) {
  const TensorEntry entry{"a", ElementType::kUint8, {0}, {}};
  EXPECT_THROW(TensorFile({entry, entry}, {}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
