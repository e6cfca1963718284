#include "lockstep/formats/mapped_file.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <numeric>
#include <thread>

#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::Bytes;
using ::testing::EndsWith;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::size_t kMapped = 1 << 20;

int sum_of(std::span<const std::uint8_t> bytes) {
  // Read even where nobody asks for the sum.
  const volatile int sum = std::accumulate(bytes.begin(), bytes.end(), 0);
  return sum;
}

class MappedFileTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder directory_;
  fs::path path_ = directory_.write("file", Bytes(kMapped, 1));
};

TEST_F(MappedFileTest, GivesTheBytes) {
  const MappedFile file(path_);
  EXPECT_EQ(file.checked([&] { return sum_of(file.bytes()); }), int{kMapped});
  const MappedFile empty(directory_.write("empty", {}));
  EXPECT_TRUE(empty.bytes().empty());
  EXPECT_NO_THROW(empty.require_unchanged());
}

TEST_F(MappedFileTest, AFileThatShrinksIsADataErrorAndNoSignal) {
  const MappedFile file(path_);
  fs::resize_file(path_, 5000);
  EXPECT_EQ(
      testing::message_of<DataError>([&] { file.checked([&] { return sum_of(file.bytes()); }); }),
      concat(path_.string(),
          ": offset 5000: another program changed the file while it was read, "
          "from 1048576 to 5000 bytes; try again when it is complete"));
  EXPECT_EQ(sum_of(file.bytes()), 5000) << "what is left, then zeros";
}

TEST_F(MappedFileTest, WhatWasLostForAMomentIsNotForgotten) {
  const MappedFile file(path_);
  const auto time = fs::last_write_time(path_);
  fs::resize_file(path_, 0);
  EXPECT_EQ(sum_of(file.bytes()), 0);
  fs::resize_file(path_, kMapped);
  fs::last_write_time(path_, time);
  EXPECT_THAT(testing::message_of<DataError>([&] { file.require_unchanged(); }),
      HasSubstr("or the disk lost a part of it, while it was read"));
}

TEST_F(MappedFileTest, TheChangedFileIsTheReasonWhateverReadingSays) {
  const MappedFile file(path_);
  std::ofstream(path_, std::ios::app) << "x";
  const auto read = [] { throw DataError("nonsense"); };
  EXPECT_THAT(testing::message_of<DataError>([&] { file.checked(read); }),
      HasSubstr("another program changed the file"));
  const MappedFile again(path_);
  EXPECT_EQ(testing::message_of<DataError>([&] { again.checked(read); }), "nonsense");
}

TEST_F(MappedFileTest, AFileThatIsReplacedByRenamingStaysWhole) {
  const MappedFile file(path_);
  directory_.write("other", Bytes(10, 2));
  fs::rename(directory_.path() / "other", path_);
  EXPECT_EQ(file.checked([&] { return sum_of(file.bytes()); }), int{kMapped});
}

TEST_F(MappedFileTest, ManyFilesInManyThreadsAreToldApart) {
  const MappedFile whole(directory_.write("whole", Bytes(kMapped, 1)));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const fs::path path = directory_.write(concat("file-", i), Bytes(100'000, 1));
        const MappedFile file(path);
        fs::resize_file(path, 1);
        EXPECT_THROW(file.checked([&] { return sum_of(file.bytes()); }), DataError);
        EXPECT_NO_THROW(whole.require_unchanged());
      }
    });
  }
  threads.clear();
  EXPECT_EQ(whole.checked([&] { return sum_of(whole.bytes()); }), int{kMapped});
}

TEST_F(MappedFileTest, OtherSignalsOfThatNumberAreNotOurs) {
  EXPECT_EXIT(
      {
        const MappedFile file(path_);
        std::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { std::_Exit(7); });
        const MappedFile file(path_);
        std::raise(SIGBUS);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace lockstep
