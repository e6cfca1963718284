// Writes figures that are hard to set, those of all studies, a page with them, and two of plans:
// pictures FOLDER

#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/studies/made_samples.h"
#include "tests/plan/profiles.h"

#include "bench/planning/plan_section.h"
#include "lockstep/plan/answer.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Series;
using Style = plot::Series::Style;

Figure lines() {
  return {.id = "lines",
      .title = "Epoch time over places",
      .x = {.label = "places"},
      .y = {.label = "second epoch [s]"},
      .series = {{"dp", {{1, 10.1, 9.9, 10.4}, {2, 6.6, 6.4, 6.9}, {4, 7.9, 7.0, 8.1, true}}},
          {"ddp", {{1, 10.0, 9.8, 10.3}, {2, 5.6, 5.4, 5.9}, {4, 6.2, 5.9, 6.6, true}}},
          {"ideal", {{1, 10}, {2, 5}, {4, 2.5}}, Style::kDashed}},
      .note =
          "Median of 5 rounds with the interval that holds it with 94 %. Hollow: more places "
          "than cores."};
}

Figure grouped_bars() {
  return {.id = "grouped_bars",
      .title = "DataParallel or DistributedDataParallel",
      .x = {.label = "batch size on each replica, places",
          .categories = {"128, 1", "128, 2", "512, 1", "512, 2"}},
      .y = {.label = "second epoch [s]"},
      .series = {
          {"dp", {{0, 10.1, 9.9, 10.4}, {1, 6.6, 6.4, 6.9}, {2, 9.9}, {3, 5.2}}, Style::kBars},
          {"ddp", {{0, 10.2}, {1, 5.6, 5.4, 5.9}, {2, 9.7}, {3, 4.9, 4.7, 5.4}}, Style::kBars},
          {"published", {{0, 3.3}, {1, 2.1}, {2, 3.0}, {3, 1.75}}, Style::kBars}}};
}

Figure negative_bars() {
  return {.id = "negative_bars",
      .title = "Bars below zero",
      .x = {.label = "cell", .categories = {"a", "b", "c"}},
      .y = {.label = "change [%]"},
      .series = {{"first", {{0, -5, -6, -4}, {1, 3, 2, 4}, {2, -0.04}}, Style::kBars},
          {"second", {{0, -1}, {1, 12}, {2, 8}}, Style::kBars}}};
}

Figure logarithmic() {
  Figure figure{.id = "logarithmic",
      .title = "All-reduce bandwidth over message size",
      .x = {.label = "message", .logarithmic = true, .bytes = true},
      .y = {.label = "bus bandwidth [GB/s]", .logarithmic = true}};
  for (const double start : {40e3, 80e3, 120e3}) {
    Series series{.name = "start-up of " + std::to_string(static_cast<int>(start)) + " bytes"};
    for (int power = 3; power <= 26; ++power) {
      const double bytes = std::pow(2, power), speed = 8 * bytes / (bytes + start);
      series.points.push_back({bytes, speed, speed * 0.9, speed * 1.1});
    }
    figure.series.push_back(series);
  }
  return figure;
}

Figure many_series() {
  Figure figure{.id = "many_series",
      .title =
          "Many series with long names, whose legend is set in rows above the picture because "
          "there is no place beside the ends of their lines",
      .x = {.label = "split size"},
      .y = {.label = "throughput [samples/s]"}};
  for (int number = 0; number < 12; ++number) {
    Series series{.name = "schedule number " + std::to_string(number) + " with four chunks"};
    for (const double x : {1, 3, 5, 8, 10, 12, 20, 40, 60})
      series.points.push_back({x, 100 + 10.0 * number + 5 * std::sin(x + number)});
    figure.series.push_back(series);
  }
  return figure;
}

Figure long_categories() {
  Series series{.name =
                    "a series whose name is longer than a line of the legend can be, because "
                    "all settings of the run have been put into it",
      .style = Style::kBars};
  Figure figure{.id = "long_categories",
      .title = "Long names",
      .x = {.label = "cell"},
      .y = {.label = "time [s]"}};
  for (int number = 0; number < 9; ++number) {
    figure.x.categories.push_back(
        "mnist-large x" + std::to_string(number) + " batch 512 per replica on four places");
    series.points.push_back({static_cast<double>(number), 1 + number * 0.3});
  }
  figure.series = {series};
  return figure;
}

Figure of(const std::string& id, const std::vector<Series>& series) {
  return {.id = id, .title = id, .x = {.label = "x"}, .y = {.label = "y"}, .series = series};
}

std::vector<Figure> figures() {
  return {lines(), grouped_bars(), negative_bars(), logarithmic(), many_series(), long_categories(),
      of("one_point", {{"dp", {{2, 1.7, 1.6, 1.8}}}}), of("no_point", {{"dp", {}}, {"ddp", {}}}),
      of("huge", {{"a", {{1e30, 1e12}, {2e30, 3.5e12}, {3e30, -2e12}}}}),
      of("tiny", {{"a", {{1e-30, 1e-12}, {2e-30, 3.5e-12}, {3e-30, 2e-12}}}}),
      of("equal", {{"a", {{1, 7}, {2, 7}, {3, 7}}}}),
      of("close_ends", {{"one", {{1, 1}, {2, 0.51}}}, {"two", {{1, 0.9}, {2, 0.50}}},
                           {"three", {{1, 1.1}, {2, 0.52}}}}),
      of("markup", {{"</text><script>alert(2)</script>", {{1, 7}, {2, 8}}},
                       {"a && b < c", {{1, 4}, {2, 5}}}})};
}

// What each study reports of samples that were made up.

page::Section throughput_section() {
  const Study study = throughput::make_study({.cores = 2});
  return study.report(study, throughput::made_rounds(study, throughput::usual_seconds()));
}

page::Section ddp_scaling_section() {
  const Study study = ddp_scaling::made_scaling_study(2);
  return study.report(study, ddp_scaling::made_scaling_rounds(study, ddp_scaling::usual_scaling()));
}

// The whole grid, whose figures have the most in them.
page::Section pipeline_section() {
  const Study study = pipeline::make_study({.full = true, .cores = 2});
  const auto samples = pipeline::made_runs(study, 5,
      {{"single", 60}, {"single-both", 33}, {"mp", 62}, {"gpipe", 33}, {"1f1b", 32},
          {"interleaved", 31}, {"zero-bubble", 30}});
  return study.report(study, samples);
}

page::Section scale_out_section() {
  const Study study = scale_out::made_scale_out();
  return study.report(study, scale_out::made_node_rounds(study, 2, 2.4));
}

page::Section collectives_section() {
  Study study = collectives::make_study({.full = true, .cores = 2});
  std::erase_if(study.cells, [](const StudyCell& cell) {
    return !cell.id.starts_with("all_reduce-n2") && !cell.id.starts_with("broadcast-n4");
  });
  return study.report(study, collectives::made_sweeps(study));
}

std::vector<page::Section> study_sections() {
  return {throughput_section(), ddp_scaling_section(), pipeline_section(), scale_out_section(),
      collectives_section()};
}

page::Page report() {
  page::Section section{.title = "DataParallel or DistributedDataParallel",
      .question = "Which of the two pays?",
      .conclusion = {
          .answer = "DDP paid: it needed 0.85 times the time (0.82 to 0.89, surely less).",
          .remarks = {"A place is 1 core here.", "The time of an epoch is that of its steps."}}};
  section.tables = {{.id = "times",
      .title = "Epoch times",
      .columns = {{"cell", true}, {"published [s]"}, {"here [s]"}},
      .rows = {{"dp x 2", "5.3", "6.6"}, {"ddp x 4", "2.9", "oversubscribed"}}}};
  section.figures = figures();
  page::Page page{.title = "The studies", .sections = {section}, .environment = "2 cores\ng++ 12"};
  for (const page::Section& each : study_sections()) page.sections.push_back(each);
  return page;
}

// The numbers are about those of a ResNet18 on cores.
plan::ModelProfile planned_net() {
  plan::ModelProfile profile = plan::testing::uniform(16, 3e6);
  for (plan::LayerCurves& layer : profile.layers) {
    layer.forward = layer.backward_input = layer.backward_weight = plan::testing::line(1e-3, 1e-3);
    layer.backward = plan::testing::line(2e-3, 2e-3);
    layer.activation_bytes = 4e6;
  }
  return profile;
}

plan::Question priced_question() {
  plan::Question question{.nodes = {1, 2, 4}, .places = {1, 2}, .batch = 128, .samples = 4.5e6};
  question.machine = {.between = plan::parse_link("10Gbit,50us"), .price = 3.06};
  return question;
}

page::Page priced_plan() {
  const plan::Answer answer = plan::answer(planned_net(), priced_question());
  return page_of_plan(section_of_plan({.answer = answer, .explains = true}));
}

// With devices, a deadline and failures, which has the most columns.
page::Page plan_of_devices() {
  plan::Question question = priced_question();
  question.within_hours = 24;
  question.currency = "USD";
  question.failures = {.between = 3600 * 200, .snapshot = 10, .recovery = 60};
  std::vector<plan::Answer> answers;
  for (const char* const device : {"T4", "A100", "TITAN-RTX"}) {
    question.machine.device = device;
    question.machine.memory_bytes = answers.empty() ? 1e9 : 40e9;
    answers.push_back(plan::answer(planned_net(), question));
  }
  const plan::Answer all = plan::merged(std::move(answers));
  return page_of_plan(section_of_plan({.answer = all, .scenarios = {{"places=4,batch=256", all}}}));
}

void write(const std::string& folder) {
  const page::Page page = report();
  for (const page::Section& section : page.sections) {
    for (const Figure& figure : section.figures)
      std::ofstream(folder + "/" + figure.id + ".svg") << plot::to_svg(figure);
  }
  std::ofstream(folder + "/report.html") << page::to_html(page);
  std::ofstream(folder + "/plan.html") << page::to_html(priced_plan());
  std::ofstream(folder + "/devices.html") << page::to_html(plan_of_devices());
}

}  // namespace
}  // namespace lockstep::bench

int main(int count, char** values) {
  if (count != 2) {
    std::cerr << "usage: pictures FOLDER\n";
    return 2;
  }
  lockstep::bench::write(values[1]);
}
