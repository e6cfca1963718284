#include "lockstep/report/page/page.h"

#include <set>

#include "lockstep/core/error.h"

namespace lockstep::bench::page {

void check_page(const Page& page) {
  std::set<std::string> tables;
  std::set<std::string> figures;
  for (const Section& section : page.sections) {
    for (const Table& table : section.tables) {
      check_table(table);
      check(tables.insert(table.id).second, "page: two tables have the id '", table.id, "'");
    }
    for (const plot::Figure& figure : section.figures) {
      plot::check_figure(figure);
      check(figures.insert(figure.id).second, "page: two figures have the id '", figure.id, "'");
    }
    for (const plot::Timeline& timeline : section.timelines) {
      plot::check_timeline(timeline);
      check(
          figures.insert(timeline.id).second, "page: two figures have the id '", timeline.id, "'");
    }
    for (const plot::HeatMap& map : section.heat_maps) {
      plot::check_heat_map(map);
      check(figures.insert(map.id).second, "page: two figures have the id '", map.id, "'");
    }
  }
}

}  // namespace lockstep::bench::page
