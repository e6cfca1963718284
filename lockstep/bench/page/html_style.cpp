#include "lockstep/bench/page/html_style.h"

#include "lockstep/bench/plot/palette.h"

namespace lockstep::bench::page {
namespace {

constexpr const char* kRules = R"(
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: 'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; padding-top: 1rem; border-top: 1px solid var(--grid); }
a { color: var(--link); }
p { max-width: 45rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
li { max-width: 45rem; margin: 0.3rem 0; overflow-wrap: anywhere; }
.question, .note { color: var(--muted); }
.note { font-size: 0.85rem; }
.conclusion { font-weight: bold; }
figure { margin: 1.5rem 0; max-width: 720px; }
svg { display: block; border: 1px solid var(--grid); border-radius: 4px; }
.table { overflow-x: auto; margin: 1.5rem 0 0.5rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.7rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
th { border-bottom: 2px solid var(--muted); vertical-align: bottom; }
.text { text-align: left; }
tbody tr:hover { background: var(--grid); }
pre { overflow-x: auto; font-size: 0.8rem; padding: 0.8rem; border: 1px solid var(--grid);
  border-radius: 4px; }
@media print {
  main { max-width: none; padding: 0; }
  figure, tr { break-inside: avoid; }
  h2, caption { break-after: avoid; }
  .table, pre { overflow: visible; }
  pre { white-space: pre-wrap; }
}
)";

std::string variables(const plot::Surface& surface, const std::string& link) {
  return std::string(":root { --paper: ") + surface.paper + "; --ink: " + surface.ink +
         "; --muted: " + surface.muted + "; --grid: " + surface.grid + "; --link: " + link +
         "; }\n";
}

}  // namespace

std::string html_style() {
  return variables(plot::kLight, "#0060a0") + "@media screen and (prefers-color-scheme: dark) {\n" +
         variables(plot::kDark, "#6cb6ff") + "}\n" + kRules;
}

}  // namespace lockstep::bench::page
