#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::plot {

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

/// The doings of several threads over a time: a row each, of boxes whose colour is what they are
/// for.
struct Timeline {
  struct Box {
    std::size_t row = 0;
    std::size_t kind = 0;  ///< of `kinds`
    double begin = 0, end = 0;
    std::string name;  ///< what is shown when it is pointed at
  };
  /// A colour's meaning; those that are quiet are grey: nothing is done.
  struct Kind {
    std::string name;
    bool is_quiet = false;
  };

  std::string id;  ///< letters, digits, `-` and `_`
  std::string title;
  std::string unit;  ///< of the time
  double length = 0;
  std::vector<std::string> rows;
  std::vector<Kind> kinds;
  std::vector<Box> boxes = {};
};

/// Throws InvalidArgument for a timeline without rows or length, and a box outside of it.
void check_timeline(const Timeline& timeline);

/// Draws it as one `<svg>` element, light or dark as the reader prefers, without scripts or links.
/// Throws as check_timeline().
std::string to_svg(const Timeline& timeline);

/// One value of a series, with the ends of its interval where they are known.
struct Point {
  double x = 0;  ///< with categories: the index of one
  double y = 0;
  std::optional<double> low = std::nullopt;   ///< lower end of the interval, at most y
  std::optional<double> high = std::nullopt;  ///< upper end of the interval, at least y
  bool hollow = false;  ///< drawn hollow, to set it apart; the figure's note says why
};

/// A row of values that belong together, with a name for the reader.
struct Series {
  /// The style of the values: measured ones are kLine or kMarkers, predicted or published ones
  /// kDashed, which has no markers.
  enum class Style { kLine, kMarkers, kBars, kDashed };

  std::string name;
  std::vector<Point> points = {};  ///< in the order in which a line joins them
  Style style = Style::kLine;
};

/// The meaning of one direction of the picture.
struct Axis {
  std::string label;                          ///< with the unit, as in "epoch time [s]"
  bool logarithmic = false;                   ///< all values must be above zero
  std::vector<std::string> categories = {};   ///< names instead of numbers; only of the x axis
  bool bytes = false;                         ///< ticks as KiB, MiB, at powers of two
  std::optional<double> most = std::nullopt;  ///< that a value can have: the y axis ends there
};

/// A picture as data: what is in it, not where. `to_svg()` draws it.
///
///     Figure figure{
///         .id = "epoch_time",
///         .title = "Epoch time over places",
///         .x = {.label = "places"},
///         .y = {.label = "second epoch [s]"},
///         .series = {{"ddp", {{1, 10.1, 9.9, 10.4}, {2, 5.6, 5.4, 5.9}}}}};
struct Figure {
  std::string id;     ///< the name of its file: letters, digits, `-` and `_`
  std::string title;  ///< one sentence or name; long ones are set in several lines
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::string note = "";  ///< a line under the picture: rounds, intervals, what is marked
};

/// Returns whether an id is made of letters, digits, - and _, so that a file may have it as its
/// name.
bool is_name(const std::string& id);

/// Throws InvalidArgument, naming figure, series and point, for what cannot be drawn: values that
/// are not finite, intervals that do not hold their value, values of zero or less on a logarithmic
/// axis, an x that is not a category's index, bars without categories or on a logarithmic axis,
/// two series of one name, several series and one without a name, an id that is not a file name.
void check_figure(const Figure& figure);

/// Draws a figure as one `<svg>` element, which is a file of its own and fits into an HTML page as
/// it is: 720 wide and scalable, as high as its texts need, light or dark as the reader prefers,
/// without scripts or links. A figure without points says so in the picture. Throws as
/// check_figure() does.
std::string to_svg(const Figure& figure);

}  // namespace lockstep::plot
