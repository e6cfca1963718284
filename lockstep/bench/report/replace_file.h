#pragma once

#include <filesystem>
#include <string>

namespace lockstep::bench {

/// Writes a whole file: readers see the old one or the new one, never a part. Throws
/// std::system_error that names it.
void replace_file(const std::filesystem::path& path, const std::string& text);

}  // namespace lockstep::bench
