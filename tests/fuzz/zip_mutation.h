#pragma once

// Changes of an archive's parts. Otherwise hardly any change would be seen by more than the zip
// reader, which compares checksums.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/formats/weights/zip_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/zip_archive.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace lockstep::testing {

inline std::vector<ZipPart> parts_of(std::span<const std::uint8_t> archive) {
  std::vector<ZipPart> parts;
  for (const auto& entry : read_zip(archive, "fuzz"))
    parts.push_back({.name = entry.name, .content = {entry.bytes.begin(), entry.bytes.end()}});
  return parts;
}

inline void mutate_content(std::string& content, std::size_t most) {
  std::vector<std::uint8_t> bytes(content.begin(), content.end());
  bytes.resize(std::max(most, bytes.size()));
  const std::size_t size = LLVMFuzzerMutate(bytes.data(), content.size(), bytes.size());
  content.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
}

/// Changes, as LLVMFuzzerCustomMutator, the content of the part that `choose` gives of all, and
/// makes the checksums right; now and then changes the archive itself.
template <typename Choose>
std::size_t mutate_archive(std::uint8_t* data, std::size_t size, std::size_t most,
    unsigned int seed, const Choose& choose) {
  if (seed % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  try {
    std::vector<ZipPart> parts = parts_of({data, size});
    if (parts.empty()) return LLVMFuzzerMutate(data, size, most);
    ZipPart& part = choose(parts);
    mutate_content(part.content, part.content.size() + 64);
    const auto archive = zip_bytes(parts);
    if (archive.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, archive.data(), archive.size());
    return archive.size();
  } catch (const DataError&) {
    return LLVMFuzzerMutate(data, size, most);
  }
}

}  // namespace lockstep::testing
