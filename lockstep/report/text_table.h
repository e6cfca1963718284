#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A table of text: columns of equal width, numbers to the right.
///
///     TextTable table({"epoch", "loss"});
///     table.add_row({"1", "0.5910"});
///     std::cout << table.text();
class TextTable {
 public:
  /// Takes the heads and, for each, whether its column is set to the left, as names are; those not
  /// said are not.
  explicit TextTable(std::vector<std::string> heads, std::vector<bool> to_the_left = {});

  /// Adds a row of as many cells as there are heads.
  void add_row(std::vector<std::string> cells);

  /// Adds a line of its own between the rows.
  void add_line(const std::string& line);

  /// Returns the table; columns without any value but `-` are left out.
  std::string text() const;

 private:
  struct Row {
    std::vector<std::string> cells;  // none: a line of its own
    std::string line;
  };

  bool is_shown(std::size_t column) const;
  std::size_t width(std::size_t column) const;

  std::vector<Row> rows_;
  std::vector<bool> to_the_left_;
};

/// Returns a value with this many digits after the point, or `-`; what is not finite as `nan` or
/// `inf`.
std::string cell(const std::optional<double>& value, int digits);

/// Returns a value with four significant digits, or `-`: for rates, which fall over many sizes.
/// Only very large and very small ones have an exponent.
std::string short_cell(const std::optional<double>& value);

}  // namespace lockstep
