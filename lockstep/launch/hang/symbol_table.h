#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// The names of functions in a program's file (ELF, 64 bits), also of those that it exports to
/// nobody. A file that is not like that, or was stripped, has none.
class SymbolTable {
 public:
  explicit SymbolTable(const std::string& file);

  /// Finds the function at an address of the file; nothing if there is none. The name is the
  /// linker's.
  std::optional<std::string> at(std::uint64_t address) const;

 private:
  struct Function {
    std::uint64_t begin, end;
    std::size_t name;  // where it begins in names_
  };

  std::vector<Function> functions_;  // by their beginnings
  std::string names_;
};

}  // namespace lockstep::launch
