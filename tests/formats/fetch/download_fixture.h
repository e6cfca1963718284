#pragma once

#include <gtest/gtest.h>

#include "tests/formats/fetch/file_server.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/fetch/download.h"

namespace lockstep::testing {

/// A server of some random bytes, started once for all tests that ask for one.
struct Origin {
  Origin();

  TemporaryFolder directory;
  std::string content;
  FileServer server;
};

/// Downloads what the server has into a folder of its own.
class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest();

  static Origin& origin();

  /// Describes the content as it is, at these behaviours of the server.
  Download wanted(const std::vector<std::string>& behaviours) const;

  /// Brings it; pauses are short, and there are three attempts at each address.
  bool bring(const std::vector<std::string>& behaviours);

  /// Returns the message that this ends with.
  std::string refusal(const std::vector<std::string>& behaviours);

  /// Returns whether the file is there and right, and nothing else.
  bool is_complete() const;

  std::filesystem::path file() const { return target_ / "set.bin"; }
  std::filesystem::path part() const { return target_ / ".set.bin.part"; }

  /// Leaves a part as a run before would have.
  void leave_part(const std::string& bytes) const;

  TemporaryFolder directory_;
  std::filesystem::path target_;
  const std::string& content_;
  FileServer& server_;
  DownloadOptions options_;
  std::vector<std::string> notices_;
};

}  // namespace lockstep::testing
