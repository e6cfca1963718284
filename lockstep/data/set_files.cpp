#include "lockstep/data/set_files.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/image_folder.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDividers = "_-. ";

struct PartWord {
  std::string_view word;
  SetPart part;
  bool may_begin;  // a tensor's name
};
constexpr PartWord kWords[] = {{"train", SetPart::kTrain, true}, {"test", SetPart::kTest, true},
    {"val", SetPart::kValidation, true}, {"valid", SetPart::kValidation, false},
    {"validation", SetPart::kValidation, false}};

/// A word of a name, by its place.
struct Word {
  std::size_t begin = 0, end = 0;
};

std::vector<Word> words_of(std::string_view name) {
  std::vector<Word> words;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find_first_of(kDividers, at), name.size());
    words.push_back({at, end});
    at = end + 1;
  }
  return words;
}

// Together with a divider beside it.
std::string without(std::string_view name, Word word) {
  if (word.end < name.size()) {
    ++word.end;
  } else if (word.begin > 0) {
    --word.begin;
  }
  return concat(name.substr(0, word.begin), name.substr(word.end));
}

NamedPart named_part(std::string_view name, bool is_tensor) {
  NamedPart named{.part = {}, .rest = std::string(name)};
  const auto words = words_of(name);
  for (const Word& word : words) {
    const bool is_first = word.begin == 0, is_last = word.end == name.size();
    const std::string text = small_letters(name.substr(word.begin, word.end - word.begin));
    const auto* const found = std::ranges::find(kWords, text, &PartWord::word);
    if (found == std::end(kWords)) continue;
    if (is_tensor && !is_last && !(is_first && found->may_begin)) continue;
    if (named.part && named.part != found->part)
      throw DataError(concat("the name ", printable(name), " says two parts, ",
          name_of(*named.part), " and ", name_of(found->part), "; rename it"));
    if (!named.part) named = {found->part, without(name, word)};
  }
  return named;
}

bool has_ending(const fs::path& path, const std::vector<std::string_view>& endings) {
  return std::ranges::find(endings, small_letters(path.extension().string())) != endings.end();
}

std::string endings_text(const std::vector<std::string_view>& endings) {
  return joined({endings.begin(), endings.end()});
}

std::vector<fs::path> files_of_folder(
    const fs::path& folder, const std::vector<std::string_view>& endings, OtherFiles& others) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.filename().string().starts_with('.')) continue;
    if (has_ending(path, endings) && !entry.is_directory()) {
      paths.push_back(path);
    } else {
      ++others.endings[entry.is_directory() ? "/" : path.extension().string()];
    }
  }
  if (paths.empty())
    throw DataError(concat(printable_path(folder.string()), ": no file there ends with one of ",
        endings_text(endings)));
  std::ranges::sort(paths);
  return paths;
}

SetFile set_file(const fs::path& path) {
  try {
    return {path, small_letters(path.extension().string()), part_of_file(path.stem().string())};
  } catch (const DataError& error) {
    throw DataError(concat(printable_path(path.string()), ": ", error.what()));
  }
}

}  // namespace

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& letter : small)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return small;
}

NamedPart part_of_file(std::string_view stem) { return named_part(stem, false); }

NamedPart part_of_tensor(std::string_view name) { return named_part(name, true); }

SetFiles list_set_files(const std::string& set, const std::string& paths,
    const std::vector<std::string_view>& endings) {
  check(!paths.empty(), set, ": name files or a folder: ", set, ":PATH");
  SetFiles found;
  OtherFiles others;
  std::set<fs::path> seen;
  for (const fs::path path : split(paths, ',')) {
    if (!fs::exists(path))
      throw DataError(concat(set, ": there is no ", printable_path(path.string()),
          "; name files or folders, with commas between them"));
    const bool is_folder = fs::is_directory(path);
    const auto files = is_folder ? files_of_folder(path, endings, others) : std::vector{path};
    for (const fs::path& file : files) {
      check(seen.insert(fs::weakly_canonical(file)).second, set, ": ",
          printable_path(file.string()), " is there twice");
      found.files.push_back(set_file(file));
    }
  }
  const std::string left_out = others.endings_text();
  if (!left_out.empty())
    found.remark =
        concat("of ", printable_path(paths), " these are not read, by their endings: ", left_out);
  return found;
}

}  // namespace lockstep::data
