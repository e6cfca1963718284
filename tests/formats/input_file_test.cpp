#include "lockstep/formats/input_file.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sys/stat.h>
#include <thread>

#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/idx.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::cut;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::joined;

std::string opening_refusal(const fs::path& path) {
  return testing::message_of<DataError>([&] { InputFile file(path); });
}

TEST(InputFile, GivesTheBytesAndThenNothing) {
  const testing::TemporaryFolder directory;
  InputFile file(directory.write("file", Bytes{1, 2, 3, 4, 5}));
  Bytes bytes(3);
  EXPECT_EQ(file.read(bytes), 3U);
  EXPECT_EQ(bytes, (Bytes{1, 2, 3}));
  EXPECT_EQ(file.read(bytes), 2U);
  EXPECT_EQ(file.read(bytes), 0U);
}

// Bytes of somebody else's memory would be lost.
TEST(MappedFile, TakesNoMemoryForBytesThatItForgets) {
  constexpr std::size_t kBytes = 16 << 20;
  const testing::TemporaryFolder directory;
  const Bytes content(kBytes, 7);
  const MappedFile file(directory.write("file", content));
  const auto all = [&] { return std::accumulate(file.bytes().begin(), file.bytes().end(), 0LL); };
  const auto taken = [] {
    std::ifstream status("/proc/self/status");
    const std::string text(std::istreambuf_iterator<char>(status), {});
    return 1024 * keyed_number(text, "RssFile:").value();
  };
  const auto before = taken();
  EXPECT_EQ(all(), 7LL * kBytes);
  EXPECT_GT(taken() - before, kBytes * 3 / 4);
  file.forget(file.bytes().subspan(1));
  EXPECT_LT(taken() - before, kBytes / 4);
  EXPECT_EQ(all(), 7LL * kBytes);
  file.forget(content);
  EXPECT_EQ(std::accumulate(content.begin(), content.end(), 0LL), 7LL * kBytes);
}

TEST(InputFile, RefusesWhatIsMissing) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "absent";
  EXPECT_EQ(opening_refusal(path),
      path.string() + ": cannot be opened: No such file or directory; check the path");
  const auto file = directory.write("file", Bytes{1});
  EXPECT_THAT(opening_refusal(file / "below"), HasSubstr("Not a directory"));
}

TEST(InputFile, RefusesWhatIsNoRegularFileWithoutWaitingForAWriter) {
  const testing::TemporaryFolder directory;
  const auto fifo = directory.path() / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const auto& [path, kind] :
      {std::pair<fs::path, const char*>(directory.path(), "a directory"), {fifo, "a FIFO"},
          {"/dev/zero", "a device"}}) {
    EXPECT_EQ(opening_refusal(path),
        concat(path.string(), ": offset 0: a regular file is needed, this is ", kind));
  }
}

TEST(InputFile, RefusesALoopOfLinksButFollowsALink) {
  const testing::TemporaryFolder directory;
  fs::create_symlink("two", directory.path() / "one");
  fs::create_symlink("one", directory.path() / "two");
  EXPECT_THAT(
      opening_refusal(directory.path() / "one"), HasSubstr("Too many levels of symbolic links"));
  directory.write("file", Bytes{1});
  fs::create_symlink("file", directory.path() / "link");
  EXPECT_NO_THROW(InputFile(directory.path() / "link"));
}

IdxArray parse_zipped(const Bytes& bytes, int dimensions = 1) {
  MemorySource compressed(bytes, "FILE");
  GunzipSource source(compressed);
  return parse_idx(source, dimensions);
}

std::string refusal(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { parse_zipped(bytes); });
}

Bytes counted(std::size_t size) {
  Bytes values(size);
  for (std::size_t i = 0; i < size; ++i)
    values[i] = static_cast<std::uint8_t>(i * 2654435761U >> 24);
  return values;
}

Bytes sample(std::size_t size = 1000) {
  return idx_bytes({static_cast<std::uint32_t>(size)}, counted(size));
}

Bytes behind(const Bytes& bytes, std::size_t from) {
  return {bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end()};
}

TEST(Gunzip, IsChosenByContentNotByName) {
  const testing::TemporaryFolder directory;
  EXPECT_EQ(read_idx(directory.write("compressed", gzip(sample())), 1).values, counted(1000));
  EXPECT_EQ(read_idx(directory.write("plain.gz", sample()), 1).values, counted(1000));
}

TEST(Gunzip, GivesLargeFilesWhole) {
  constexpr std::size_t kSize = 500'000;
  EXPECT_EQ(parse_zipped(gzip(sample(kSize))).values, counted(kSize));
  EXPECT_EQ(parse_zipped(sample(kSize)).values, counted(kSize));
}

TEST(Gunzip, ReadsSeveralMembersAsOne) {
  const auto whole = sample();
  for (std::size_t size = 0; size <= whole.size(); size += 7) {
    const auto members = joined(gzip(cut(whole, size)), gzip(behind(whole, size)));
    EXPECT_EQ(parse_zipped(members).values, counted(1000)) << size;
  }
  Bytes many;
  for (const std::uint8_t byte : whole) many = joined(std::move(many), gzip({byte}));
  EXPECT_EQ(parse_zipped(many).values, counted(1000));
}

TEST(Gunzip, ReadsMembersThatMeetAtAnyPlaceOfTheBuffer) {
  // Stored blocks keep the size, so the second member starts around the 64 KiB at which the buffer
  // ends.
  const auto whole = sample(70'000);
  for (std::size_t size = 65'440; size < 65'540; ++size) {
    const auto members = joined(gzip(cut(whole, size), 0), gzip(behind(whole, size)));
    EXPECT_EQ(parse_zipped(members).values, counted(70'000)) << size;
  }
}

TEST(Gunzip, RefusesTruncationAtEveryByte) {
  const auto members = joined(gzip(cut(sample(), 300)), gzip(behind(sample(), 300)));
  for (std::size_t size = 0; size < members.size(); ++size) {
    const auto message = refusal(cut(members, size));
    EXPECT_THAT(message, HasSubstr("FILE: ")) << size;
    EXPECT_THAT(message, HasSubstr("offset ")) << size;
  }
  EXPECT_THAT(refusal(cut(members, members.size() - 1)),
      HasSubstr(concat(
          "FILE: compressed offset ", members.size() - 1, ": the gzip stream ends too early")));
}

TEST(Gunzip, RefusesDamage) {
  const auto whole = gzip(sample());
  for (const auto& [at, reason] : {std::pair(whole.size() - 8, "incorrect data check"),
           {whole.size() - 1, "incorrect length check"}, {2, "unknown compression method"}}) {
    auto damaged = whole;
    damaged[at] ^= 1;
    EXPECT_THAT(refusal(damaged), HasSubstr(concat("the gzip stream is damaged: ", reason)));
  }
}

TEST(Gunzip, RefusesBytesAfterTheLastMember) {
  const auto member = gzip(sample());
  for (const Bytes& garbage :
      {Bytes{0}, Bytes{0x1f}, Bytes{0x1f, 0x8c}, Bytes(70'000), Bytes{'x', 'y'}}) {
    EXPECT_THAT(refusal(joined(member, garbage)),
        HasSubstr(concat("FILE: compressed offset ", member.size(),
            ": bytes that are not a gzip member follow")));
  }
}

TEST(Gunzip, RefusesBytesAfterAMemberThatEndsJustBeforeTheBuffer) {
  constexpr std::size_t kBuffer = 64 * 1024;
  const std::size_t overhead = gzip(sample(60'000), 0).size() - 60'000;
  const auto member = gzip(sample(kBuffer - 1 - overhead), 0);
  ASSERT_EQ(member.size(), kBuffer - 1);
  EXPECT_THAT(refusal(joined(member, {'x', 0x8b, 8, 0, 0, 0})),
      HasSubstr(concat(
          "compressed offset ", member.size(), ": bytes that are not a gzip member follow")));
}

TEST(Gunzip, StopsABombAtWhatTheHeaderPromises) {
  const auto bomb = gzip(joined(sample(), Bytes(200 << 20)));
  ASSERT_GT(bomb.size(), 180'000U);
  MemorySource compressed(bomb, "FILE");
  GunzipSource source(compressed);
  EXPECT_THROW(parse_idx(source, 1), DataError);
  EXPECT_LE(source.bytes_read(), 64U * 1024);
}

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

TEST_F(MappedFileTest, AFileThatIsRemovedStaysWholeUnlessPagesAreLost) {
  const MappedFile file(path_);
  const fs::path other = directory_.path() / "other";
  fs::rename(path_, other);
  EXPECT_EQ(file.checked([&] { return sum_of(file.bytes()); }), int{kMapped});
  fs::resize_file(other, 0);
  EXPECT_THROW(file.checked([&] { return sum_of(file.bytes()); }), DataError);
}

TEST_F(MappedFileTest, TakesNoFileDescriptor) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = descriptors();
  const MappedFile file(path_);
  EXPECT_EQ(descriptors(), before);
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
