#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep::exported {

/// A file, if it was not in memory already, and what its tensors need beside it.
struct Memory {
  std::optional<MappedFile> file;
  std::deque<std::vector<std::uint8_t>> copies;  ///< of views whose elements lie in another order
  std::vector<FileMemory> pickles;
  std::uint64_t bytes_left = 0;  ///< that all of them together may still take

  /// Takes some of the bytes that are left. A small archive can stand for very many, as views may
  /// repeat their elements: those are refused, with a DataError that begins with `where`.
  void spend(std::uint64_t bytes, const std::string& where);
};

/// A part of an archive, and where it begins.
struct Part {
  std::span<const std::uint8_t> bytes;
  std::uint64_t offset = 0;
};

/// The parts of an archive of `torch.export`: JSON, tensors' bytes, files of torch.save.
class Parts {
 public:
  /// Takes an archive apart. What is none, or of another version or byte order, is a DataError that
  /// says what to do. The bytes must outlive this.
  Parts(std::span<const std::uint8_t> archive, std::string file);

  const std::string& file() const { return file_; }

  /// Finds a part by its name below the archive's own folder; null if there is none.
  const Part* find(std::string_view name) const;

  /// Finds a part; without it throws DataError.
  const Part& at(std::string_view name) const;

  /// Reads a part that is JSON.
  nlohmann::json json(const std::string& name) const;

  /// Returns the programs' names, in the order of the archive; there is at least one.
  const std::vector<std::string>& programs() const { return programs_; }

 private:
  void add(std::string name, const Part& part);
  void check_text(std::string_view name, std::string_view expected, const char* advice) const;
  [[noreturn]] void refuse_without_format() const;

  std::string file_;
  std::map<std::string, Part, std::less<>> parts_;
  std::vector<std::string> programs_;
};

}  // namespace lockstep::exported
