#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {

/// Returns the path below a root that an archive's entry names, without `.` and doubled slashes;
/// empty for the root itself.
///
/// A name that is absolute, climbs by `..`, is longer or deeper than the limits, or holds a control
/// character is a DataError whose text is the reason alone.
std::filesystem::path path_in_archive(
    const std::string& name, std::size_t longest, std::size_t deepest);

/// Returns a name as messages show it: by printable_path(), at most 200 letters.
std::string shown_name(const std::string& name);

}  // namespace lockstep
