#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench::plot {

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

}  // namespace lockstep::bench::plot
