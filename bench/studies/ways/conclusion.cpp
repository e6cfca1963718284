#include <algorithm>
#include <map>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/ways/study.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::bench::ways {
namespace {

constexpr double kMuch = 0.1;  // of the time: worth a word

std::string rate_text(const Cells& cells, const Cell& first) {
  const auto faster = speed_up(cells, first);
  const std::string rate = concat(
      "Fastest: ", label(cells, first), ", ", seconds_text(*first.median(kRate)), " images/s");
  if (!faster) return rate + ".";
  return concat(rate, ", ", with_interval(*faster), " times as fast as ",
      label(cells, *serial_of(cells, first)), ".");
}

std::string sureness_text(const Cells& cells, const Best& best) {
  if (best.second == nullptr) return "No other cell has a number to compare it with.";
  const auto ratio = ratio_of(best.first, best.second, kRate);
  const std::string next = label(cells, *best.second);
  if (!ratio) return concat("No round has both it and the next, ", next, ".");
  return concat("It is ", with_interval(*ratio), " times as fast as the next, ", next, ": ",
      surely_equal(ratio) ? equal_text() : verdict_on(*ratio, "faster", "slower"), ".");
}

// Without the flags that only a measurement needs.
Words without_bench_flags(const Words& command) {
  const std::vector<std::string> ours{"--max-steps", "--log-interval", "--val-interval",
      "--snapshot-interval", "--progress", "--max-restarts"};
  Words words;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const bool is_ours = std::find(ours.begin(), ours.end(), command[i]) != ours.end();
    const bool is_mock = command[i] == "--data" && command[i + 1] == kUsualWaysData;
    if (is_ours || is_mock) {
      ++i;
    } else {
      words.push_back(command[i]);
    }
  }
  return words;
}

std::string command_text(const Cell& cell) {
  const StudyCell& what = cell.result.cell;
  return concat("Train with: ", joined(what.environment, " "), " lockstep ",
      shell_text(without_bench_flags(what.command)));
}

std::string unrecorded(const Cell& cell) {
  if (cell.way == "serial" || cell.way == "ddp") return "";
  return " What its places wait for each other is not recorded.";
}

std::string hint(double data, double comm) {
  if (data >= kMuch) return " More --workers may help.";
  return comm >= kMuch ? " A larger batch needs less of that for each image." : "";
}

// As far as the records of the runs tell.
std::string limits_text(const Cell& cell) {
  const auto data = cell.median(kDataShare), comm = cell.median(kCommShare);
  if (!data) return "";
  return concat("Of the fastest's time ", percent_text(*data), " was waiting for data",
      comm ? concat(" and ", percent_text(*comm), " for other ranks in backward") : "", ".",
      unrecorded(cell), hint(*data, comm.value_or(0)));
}

std::string efficiency_text(const Cells& cells, const Cell& cell) {
  const auto share = efficiency(cells, cell);
  if (!share) return "";
  return concat("It makes ", percent_text(*share), " of what ",
      cell.result.cell.on_cores ? "its cores" : "its devices", " would at the rate of ",
      label(cells, *serial_of(cells, cell)), ".");
}

std::string not_measured(const Cells& cells) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    const CellResult& result = cell.result;
    if (result.samples.empty() && result.cell.not_measurable.empty())
      names.push_back(label(cells, cell));
  }
  if (names.empty()) return "";
  return concat("Not measured in the time that there was: ", joined(names, "; "),
      ". The same command with --output goes on.");
}

// One line for each reason.
std::vector<std::string> left_out(const Cells& cells) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const Cell& cell : cells) {
    const std::string& reason = cell.result.cell.not_measurable;
    if (!reason.empty()) by_reason[reason].push_back(label(cells, cell));
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : by_reason)
    lines.push_back(concat("Left out: ", joined(names, "; "), ": ", reason));
  return lines;
}

std::string about_rounds(const Cells& cells, const Best& best) {
  const int most = best.first->estimate(kRate)->count;
  const auto fewer = std::count_if(cells.begin(), cells.end(), [&](const Cell& cell) {
    const auto rate = cell.estimate(kRate);
    return cell.is_fair() && rate && rate->count < most;
  });
  if (fewer == 0) return "";
  return concat("Cells that had become clearly slower", best.equals.empty() ? "" : ", or equal,",
      " were left out of later rounds: ", fewer, " of ", cells.size(), ".");
}

std::string about_crowd(const Cells& cells) {
  const int over = least_oversubscribed(cells, &Cell::places);
  return over == 0 ? "" : about_oversubscribed(concat(over, " places"));
}

std::string about_sureness(const Best& best) {
  Verdict verdict;
  if (best.second != nullptr) verdict.add(ratio_of(best.first, best.second, kRate));
  if (best.equals.empty()) return verdict.explained();
  return in_one({verdict.explained(), equal_explained()});
}

}  // namespace

page::Conclusion conclusion(const Cells& cells) {
  const Best best = best_of(cells);
  std::vector<std::string> remarks = left_out(cells);
  remarks.push_back(not_measured(cells));
  remarks.push_back(about_crowd(cells));
  if (best.first == nullptr)
    return {.answer = "No cell has a number and cores of its own.", .remarks = said(remarks)};
  const Cell& first = *best.first;
  remarks.insert(remarks.begin(),
      {command_text(*best.taken), limits_text(first), efficiency_text(cells, first),
          about_sureness(best), about_rounds(cells, best)});
  remarks.push_back(about_missing(results_of(cells)));
  return {.answer = in_one(
              {rate_text(cells, first), sureness_text(cells, best), equals_text(cells, best)}),
      .remarks = said(remarks)};
}

}  // namespace lockstep::bench::ways
