// A download's file on a network file system, and beside another download.

#include <cerrno>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <system_error>

#include "tests/snapshot/system_calls.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/fetch/download.h"

namespace lockstep {
namespace {

using testing::contents;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SystemCall;
using testing::WatchedCalls;

void append_text(PartialFile& file, std::string_view text) {
  file.append({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// renameat2() with a flag, as NFS, CephFS, Gluster and 9p answer it.
int refused(const SystemCall& call) {
  return call.name == "exchange" ? EINVAL : int{testing::kDone};
}

TEST(PartialFile, GetsItsNameWhereRenamingKnowsNoFlags) {
  const testing::TemporaryFolder folder;
  PartialFile file(folder.path(), "data.gz");
  append_text(file, "all of it");
  {
    const WatchedCalls watched(folder.path(), refused);
    file.finish();
  }
  EXPECT_THAT(folder.names(), ElementsAre("data.gz"));
  EXPECT_EQ(contents(folder.file("data.gz")), "all of it");
}

TEST(PartialFile, NeverReplacesWhatHasTheName) {
  const testing::TemporaryFolder folder;
  PartialFile file(folder.path(), "data.gz");
  append_text(file, "fetched");
  std::ofstream(folder.file("data.gz")) << "precious";
  EXPECT_THROW(file.finish(), std::system_error);
  {
    const WatchedCalls watched(folder.path(), refused);
    EXPECT_THAT(
        testing::message_of<std::system_error>([&] { file.finish(); }), HasSubstr("File exists"));
  }
  EXPECT_EQ(contents(folder.file("data.gz")), "precious");
  EXPECT_THAT(folder.names(), ElementsAre(".data.gz.part", "data.gz"));
}

TEST(PartialFile, TwoAtOnceAreRefused) {
  const testing::TemporaryFolder folder;
  const PartialFile first(folder.path(), "data.gz");
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { PartialFile(folder.path(), "data.gz"); }),
      HasSubstr("another process is downloading it"));
}

// Between the opening and the lock of the second the first gets its name.
TEST(PartialFile, WhatAnotherDownloadHasFinishedMeanwhileIsLeftAlone) {
  const testing::TemporaryFolder folder;
  std::optional<PartialFile> first(std::in_place, folder.path(), "data.gz");
  append_text(*first, "all of it");
  const WatchedCalls watched(
      folder.path(), [](const SystemCall&) { return int{testing::kDone}; },
      [&](const SystemCall& call, long) {
        if (call.name != "create" || !first) return;
        first->finish();
        first.reset();
      });
  PartialFile second(folder.path(), "data.gz");
  EXPECT_EQ(second.size(), 0U);
  append_text(second, "x");
  second.restart();
  EXPECT_EQ(contents(folder.file("data.gz")), "all of it");
}

}  // namespace
}  // namespace lockstep
