// Memory that another process names: only what a rank of this user has made is opened. And copies
// of any length, from and to anywhere, past the caches or not.

#include <algorithm>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/host/shared_region.h"
#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

std::string label_of(const std::string& ticket) { return ticket.substr(ticket.rfind(' ') + 1); }

std::string refusal_of(const std::string& ticket, std::size_t bytes = 4096) {
  return message_of<CommError>([&] { open_memory_file(ticket, bytes); });
}

TEST(MemoryFile, IsOpenedByItsTicket) {
  const MemoryFile file = make_memory_file(4096);
  const Mapping own = Mapping::shared(file.descriptor, 4096);
  const Mapping other = Mapping::shared(open_memory_file(file.ticket, 4096), 4096);
  own.data()[5] = std::byte{7};
  EXPECT_EQ(other.data()[5], std::byte{7});
}

TEST(MemoryFile, OtherMemoryIsRefused) {
  const MemoryFile file = make_memory_file(4096), wrong = make_memory_file(4096);
  EXPECT_NE(label_of(file.ticket), label_of(wrong.ticket));
  EXPECT_THAT(
      refusal_of(concat(::getpid(), " ", wrong.descriptor.get(), " ", label_of(file.ticket))),
      HasSubstr("is not what a rank of this user has made"));
  EXPECT_THAT(refusal_of(file.ticket, 4097), HasSubstr("is not what a rank"));
}

// Whoever writes to the store could name a file of ours, which would then be written over.
TEST(MemoryFile, AFileOnDiskIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "weights";
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  EXPECT_THAT(
      refusal_of(concat(::getpid(), " ", file.get(), " weights")), HasSubstr("is not what a rank"));
}

TEST(MemoryFile, WhatIsNoTicketIsSaidSo) {
  for (const char* text : {"", "12", "12 x", "\x1b[2J"})
    EXPECT_THAT(refusal_of(text), HasSubstr("a rank sent no ticket"));
}

// Root could open the memory of any user; for others the kernel refuses.
TEST(MemoryFile, MemoryOfAnotherUserIsRefused) {
  Pipe ticket = make_pipe(), over = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
    MemoryFile file = make_memory_file(4096);
    if (::geteuid() != 65534) file.ticket += "x";  // not root: a label that does not fit
    (void)!::write(ticket.writer.get(), file.ticket.data(), file.ticket.size());
    char byte;
    over.writer.reset();
    (void)!::read(over.reader.get(), &byte, 1);
    ::_exit(0);
  }
  char text[200];
  const auto length = ::read(ticket.reader.get(), text, sizeof(text));
  ASSERT_GT(length, 0);
  EXPECT_THAT(
      refusal_of({text, static_cast<std::size_t>(length)}), HasSubstr("is not what a rank"));
  over.writer.reset();
  ::waitpid(child, nullptr, 0);
}

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// What std::copy does between the same places is right; around the destination nothing changes.
void expect_copied(
    std::size_t count, std::size_t from, std::size_t to, const reduce::Traffic& traffic) {
  const Bytes source = some_bytes(count + from);
  Bytes copied(count + to + 100, std::byte{9}), expected = copied;
  copy_bytes(copied.data() + to, source.data() + from, count, traffic);
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), count,
      expected.begin() + static_cast<std::ptrdiff_t>(to));
  EXPECT_EQ(copied, expected) << count << " bytes from " << from << " to " << to;
}

TEST(CopyBytes, OfAnyLengthBetweenAnyPlaces) {
  for (const std::size_t count :
      {0UL, 1UL, 7UL, 63UL, 64UL, 65UL, 127UL, 1000UL, 4096UL, 20'011UL}) {
    for (const std::size_t from : {0UL, 1UL, 4UL, 8UL, 60UL}) {
      for (const std::size_t to : {0UL, 1UL, 4UL, 8UL, 63UL}) {
        expect_copied(count, from, to, {});
        expect_copied(count, from, to, {.ahead = 4096, .streams = true});
      }
    }
  }
}

TEST(CopyBytes, OntoItselfAndOverlapping) {
  for (const std::ptrdiff_t shift : {-200L, -8L, 0L, 8L, 200L}) {
    const Bytes source = some_bytes(3000);
    Bytes bytes = source;
    copy_bytes(bytes.data() + 500 + shift, bytes.data() + 500, 2000, {.streams = true});
    EXPECT_TRUE(std::equal(
        bytes.begin() + 500 + shift, bytes.begin() + 2500 + shift, source.begin() + 500));
  }
}

}  // namespace
}  // namespace lockstep::host
