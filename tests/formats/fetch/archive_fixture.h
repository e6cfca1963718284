#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/fetch/archive.h"

namespace lockstep::testing {

/// Unpacks bytes into a folder of its own, beside which nothing may appear.
class ArchiveTest : public ::testing::Test {
 protected:
  Unpacked extract(const Bytes& bytes, const ArchiveLimits& limits = {}) {
    archive_ = directory_.write("archive", bytes);
    std::filesystem::remove_all(root());
    std::filesystem::create_directory(root());
    return extract_archive(archive_, root(), limits);
  }

  /// Returns the message without the archive's path.
  std::string refusal(const Bytes& bytes, const ArchiveLimits& limits = {}) {
    const std::string text = message_of<DataError>([&] { extract(bytes, limits); });
    const std::string path = archive_.string() + ": ";
    EXPECT_TRUE(text.starts_with(path)) << text;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 2);
    return text.substr(path.size());
  }

  std::filesystem::path root() const { return directory_.path() / "root"; }

  std::string text_of(const std::string& name) const {
    std::ifstream file(root() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder directory_;
  std::filesystem::path archive_;
};

}  // namespace lockstep::testing
