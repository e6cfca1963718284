#include "lockstep/formats/fetch/checksum_list.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/fetch/archive_path.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 1024;
constexpr std::size_t kDeepest = 32;

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(folder));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Looks at one line: the hash, two spaces, the name.
std::optional<std::string> line_fault(const fs::path& folder, const std::string& line) {
  const std::string expected = line.substr(0, kSha256Letters);
  const std::string between = line.substr(expected.size(), 2);
  if (!is_sha256(expected) || between != "  ") return "its list of checksums is damaged";
  const std::string name = line.substr(kSha256Letters + 2);
  try {
    const fs::path path = folder / path_in_archive(name, kLongestName, kDeepest);
    const std::string sha256 = sha256_of_file(path);
    if (sha256 == expected) return std::nullopt;
    return concat(name, " has the SHA-256 ", sha256, " and must have ", expected);
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

void write_checksum_list(const fs::path& folder) {
  std::string text;
  for (const auto& file : files_below(folder)) {
    text += sha256_of_file(folder / file) + "  " + file.string() + "\n";
  }
  OutputFile list(folder / kChecksumList);
  list.write(text);
  list.close();
}

std::optional<std::string> checksum_list_fault(const fs::path& folder) {
  std::ifstream list(folder / kChecksumList);
  if (!list) return concat("it has no list of checksums, ", kChecksumList);
  std::size_t lines = 0;
  for (std::string line; std::getline(list, line); ++lines) {
    if (auto fault = line_fault(folder, line)) return fault;
  }
  if (lines == 0) return "its list of checksums is empty";
  return std::nullopt;
}

}  // namespace lockstep
