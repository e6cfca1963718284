#include "lockstep/formats/weights/tensor_file.h"

#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::string first_parts(const std::vector<TensorEntry>& entries) {
  std::set<std::string> parts;
  for (const TensorEntry& entry : entries) {
    const std::size_t dot = entry.name.find('.');
    if (dot != std::string::npos) parts.insert(entry.name.substr(0, dot));
  }
  return parts.empty() ? "none" : first_of({parts.begin(), parts.end()}, parts.size());
}

}  // namespace

TensorFile::TensorFile(std::vector<TensorEntry> entries,
    std::map<std::string, std::string> metadata, FileMemory memory)
    : entries_(std::move(entries)), metadata_(std::move(metadata)), memory_(std::move(memory)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool is_new = places_.emplace(entries_[i].name, i).second;
    check(is_new, "TensorFile: two tensors have the name ", entries_[i].name);
  }
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &entries_[place->second];
}

TensorFile TensorFile::part(std::string_view prefix) const {
  const std::string front = concat(prefix, '.');
  std::vector<TensorEntry> chosen;
  for (const TensorEntry& entry : entries_) {
    if (!entry.name.starts_with(front)) continue;
    chosen.push_back(entry);
    chosen.back().name.erase(0, front.size());
  }
  // Python keeps one name of tied weights, and says in the metadata which: {left out: kept}. The
  // one that it kept may lie outside of this part.
  auto metadata = metadata_;
  for (const auto& [name, kept] : metadata_) {
    const TensorEntry* const entry = find(kept);
    if (!name.starts_with(front) || entry == nullptr || find(name) != nullptr) continue;
    chosen.push_back(*entry);
    chosen.back().name = name.substr(front.size());
    metadata.erase(name);
  }
  check(!chosen.empty(), "no tensor's name begins with ", front,
      " (names begin with: ", first_parts(entries_), ')');
  return TensorFile(std::move(chosen), std::move(metadata), memory_);
}

}  // namespace lockstep
