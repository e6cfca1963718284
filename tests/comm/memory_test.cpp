// Memory that another process names: only what a rank of this user has made is opened.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/comm/host/mapping.h"
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

}  // namespace
}  // namespace lockstep::host
