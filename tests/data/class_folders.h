#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::data::testing {

inline std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

/// Makes a folder with these files in folders of their own, and removes it.
class ClassFolders {
 public:
  explicit ClassFolders(const std::vector<std::string>& files) {
    for (const auto& file : files) write(file, file);
  }

  std::filesystem::path path() const { return directory_.path(); }

  void write(const std::string& file, std::string_view content) const {
    std::filesystem::create_directories((path() / file).parent_path());
    directory_.write(file, bytes_of(content));
  }

 private:
  lockstep::testing::TemporaryFolder directory_;
};

}  // namespace lockstep::data::testing
