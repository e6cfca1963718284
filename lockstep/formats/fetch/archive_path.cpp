#include "lockstep/formats/fetch/archive_path.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestPart = 255;  // what Linux's file systems take
constexpr std::size_t kMostShown = 200;

bool is_control(char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }

void require(bool condition, const std::string& reason) {
  if (!condition) throw DataError(reason);
}

}  // namespace

std::filesystem::path path_in_archive(
    const std::string& name, std::size_t longest, std::size_t deepest) {
  require(!name.empty(), "it has no name");
  require(name.size() <= longest, concat("its name is longer than ", longest, " bytes"));
  require(name.front() != '/', "its name is an absolute path");
  require(std::none_of(name.begin(), name.end(), is_control), "its name holds a control character");
  std::filesystem::path path;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string part = name.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    require(part != "..", "its name leaves the folder by ..");
    require(part.size() <= kLongestPart,
        concat("a part of its name is longer than ", kLongestPart, " bytes"));
    require(++depth <= deepest, concat("it lies more than ", deepest, " folders deep"));
    path /= part;
  }
  return path;
}

std::string shown_name(const std::string& name) {
  const std::string front = printable_path(name.substr(0, kMostShown));
  return name.size() > kMostShown ? front + "..." : front;
}

}  // namespace lockstep
