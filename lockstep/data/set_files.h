#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep::data {

/// The parts of a set.
enum class SetPart { kTrain, kValidation, kTest };
constexpr auto names_of(SetPart) {
  return std::array{EnumName{SetPart::kTrain, "train"}, EnumName{SetPart::kValidation, "val"},
      EnumName{SetPart::kTest, "test"}};
}

/// A name divided into the word that says a part, and what is left without it.
struct NamedPart {
  std::optional<SetPart> part;
  std::string rest;
};

/// Looks for a word that says a part: `train`, `test`, `val`, `valid`, `validation`, in whatever
/// case; words are divided by `_`, `-`, `.` and blanks. Of a tensor's name only the first and the
/// last word count, and of the first not `valid`: `valid_mask` is no part.
///
/// Words that say different parts are a DataError.
NamedPart part_of_file(std::string_view stem);
NamedPart part_of_tensor(std::string_view name);

/// Returns a text with small letters in place of the capitals of ASCII.
std::string small_letters(std::string_view text);

/// A file of a set; `rest` is its name without folder, ending and the part's word.
struct SetFile {
  std::filesystem::path path;
  std::string ending;  ///< in small letters: `.npy`
  NamedPart named;
};

/// The files of a set, and what of its folders is not read, for people; empty: nothing.
struct SetFiles {
  std::vector<SetFile> files;
  std::string remark;
};

/// Lists files and folders with commas between them. A folder stands for those of its files that
/// have one of the endings, sorted by name; hidden ones are left out.
///
/// Throws DataError, which names the set, for a path that is not there, and for a folder without
/// such files; InvalidArgument for no path at all.
SetFiles list_set_files(
    const std::string& set, const std::string& paths, const std::vector<std::string_view>& endings);

}  // namespace lockstep::data
