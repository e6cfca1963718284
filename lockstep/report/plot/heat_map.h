#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench::plot {

/// A table of counts as a picture: rows and columns have the same names, a cell is the darker the
/// larger its share of its row. What lies on the diagonal has a colour of its own.
struct HeatMap {
  /// A count that is not 0.
  struct Cell {
    std::size_t row = 0;
    std::size_t column = 0;
    std::int64_t count = 0;
    double share = 0;  ///< of the row, from 0 to 1
  };

  std::string id;  ///< letters, digits, `-` and `_`
  std::string title;
  std::string rows;     ///< what the rows are
  std::string columns;  ///< what the columns are
  std::vector<std::string> names;
  std::vector<Cell> cells = {};
};

/// The most names of a picture that a reader can still use.
inline constexpr std::size_t kMostHeatMapNames = 200;

/// Throws InvalidArgument for a map without names or with more than kMostHeatMapNames, a cell
/// outside of it, and a share that is none.
void check_heat_map(const HeatMap& map);

/// Draws a map as one `<svg>` element, light or dark as the reader prefers, without scripts or
/// links. Its names are always readable, so it may be wider than a page; each cell says what it is
/// when pointed at, and shows its count where there is room. Throws as check_heat_map().
std::string to_svg(const HeatMap& map);

}  // namespace lockstep::bench::plot
