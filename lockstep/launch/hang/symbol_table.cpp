#include "lockstep/launch/hang/symbol_table.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep::launch {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of a part of the file

/// Reads that many values from a place in the file; none if they are not all there.
template <typename Value>
std::vector<Value> values_at(std::ifstream& file, std::uint64_t place, std::uint64_t count) {
  if (count > kMostBytes / sizeof(Value) || place > kMostBytes * 1024) return {};
  std::vector<Value> values(count);
  const auto bytes = static_cast<std::streamsize>(count * sizeof(Value));
  file.seekg(static_cast<std::streamoff>(place));
  if (!file.read(reinterpret_cast<char*>(values.data()), bytes)) return {};
  return values;
}

std::vector<Elf64_Shdr> sections_of(std::ifstream& file) {
  const auto header = values_at<Elf64_Ehdr>(file, 0, 1);
  const bool is_known = !header.empty() && std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) == 0 &&
                        header[0].e_ident[EI_CLASS] == ELFCLASS64 &&
                        header[0].e_shentsize == sizeof(Elf64_Shdr);
  if (!is_known) return {};
  return values_at<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
}

}  // namespace

SymbolTable::SymbolTable(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name, ignored)) return;  // another may block
  std::ifstream file(name, std::ios::binary);
  const auto sections = sections_of(file);
  const auto table = std::find_if(sections.begin(), sections.end(),
      [](const Elf64_Shdr& section) { return section.sh_type == SHT_SYMTAB; });
  if (table == sections.end() || table->sh_link >= sections.size()) return;
  const Elf64_Shdr& names = sections[table->sh_link];
  const auto letters = values_at<char>(file, names.sh_offset, names.sh_size);
  names_.assign(letters.begin(), letters.end());
  const auto symbols =
      values_at<Elf64_Sym>(file, table->sh_offset, table->sh_size / sizeof(Elf64_Sym));
  for (const Elf64_Sym& symbol : symbols) {
    const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0;
    if (is_function && symbol.st_name < names_.size())
      functions_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name});
  }
  std::sort(functions_.begin(), functions_.end(),
      [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

std::optional<std::string> SymbolTable::at(std::uint64_t address) const {
  auto found = std::upper_bound(functions_.begin(), functions_.end(), address,
      [](std::uint64_t wanted, const Function& function) { return wanted < function.begin; });
  if (found == functions_.begin()) return std::nullopt;
  --found;
  // An address to return to may be the first one after a function that never returns.
  if (address > found->end) return std::nullopt;
  return std::string(names_.c_str() + found->name);
}

}  // namespace lockstep::launch
