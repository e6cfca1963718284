#include "comparison.h"

#include <algorithm>
#include <cstdio>

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep::benchmark {
namespace {

using bench::median;

bool is_finer(ScheduleKind kind) { return kind == ScheduleKind::kInterleaved; }

ScheduleRecord make_record(ScheduleKind kind, int ranks, int chunks) {
  const int stages = is_finer(kind) ? 2 * ranks : ranks;
  return {kind, stages, ranks * (1 - bubble_share(kind, ranks, stages, chunks))};
}

double total(const std::vector<StageCosts>& costs, double StageCosts::*part) {
  double sum = 0;
  for (const StageCosts& stage : costs) sum += stage.*part;
  return sum;
}

// Seconds of all stages, one after the other, for all micro-batches.
double whole(const std::vector<StageCosts>& costs, int chunks) {
  return chunks * (total(costs, &StageCosts::forward) + total(costs, &StageCosts::backward));
}

std::string with_range(const char* format, const std::vector<double>& values) {
  const auto text = [format](double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), format, value);
    return std::string(buffer);
  };
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return concat(text(median(values)), " (", text(*least), " to ", text(*most), ")");
}

std::string megabytes(const std::vector<std::int64_t>& bytes) {
  std::string text;
  for (const std::int64_t some : bytes) text += concat(text.empty() ? "" : " / ", some / 1'000'000);
  return text;
}

}  // namespace

Comparison::Comparison(
    StageMachine& machine, const WorkSize& size, int chunks, const std::vector<ScheduleKind>& kinds)
    : machine_(machine),
      size_(size),
      chunks_(chunks),
      work_(make_work(size, chunks)),
      balance_(machine.agreed(work_.balance(machine.ranks()))),
      finer_balance_(machine.agreed(work_.balance(2 * machine.ranks()))) {
  for (const ScheduleKind kind : kinds)
    records_.push_back(make_record(kind, machine.ranks(), chunks));
}

std::vector<int> Comparison::balance_of(const ScheduleRecord& record) const {
  return is_finer(record.kind) ? finer_balance_ : balance_;
}

PipelineOptions Comparison::options_of(const ScheduleRecord& record) const {
  return PipelineOptions().chunks(chunks_).schedule(record.kind);
}

double Comparison::simulated(
    const ScheduleRecord& record, const std::vector<StageCosts>& costs) const {
  return simulated_seconds(
      make_schedule(record.kind, machine_.ranks(), record.stages, chunks_), costs);
}

void Comparison::measure(ScheduleRecord& record, const Round& round) {
  const auto& lone = is_finer(record.kind) ? round.lone_finer : round.lone;
  const StepCost step = machine_.step(work_, balance_of(record), options_of(record));
  const double speed_up = whole(round.lone, chunks_) / step.seconds;
  record.seconds.push_back(step.seconds);
  record.speed_ups.push_back(speed_up);
  record.of_bound.push_back(speed_up / record.bubble_bound);
  record.of_simulated.push_back(simulated(record, lone) / step.seconds);
  if (!is_finer(record.kind))
    record.of_at_once.push_back(simulated(record, round.at_once) / step.seconds);
  record.cpu.push_back(step.cpu_seconds / (chunks_ * total(lone, &StageCosts::cpu)));
  record.page_faults.push_back(step.page_faults);
}

void Comparison::run_round() {
  const MachineLoad load;
  Round round;
  round.lone = machine_.lone_stages(work_, balance_, chunks_);
  round.lone_finer = machine_.lone_stages(work_, finer_balance_, chunks_);
  round.at_once = machine_.lone_stages_at_once(work_, balance_, chunks_);
  for (ScheduleRecord& record : records_) measure(record, round);
  rounds_.push_back(round);
  if (machine_.reports()) print_round(load);
}

// The raw records.
void Comparison::print_round(const MachineLoad& load) const {
  std::printf(
      "round %zu: stages alone %.4f s", rounds_.size(), whole(rounds_.back().lone, chunks_));
  for (const ScheduleRecord& record : records_)
    std::printf(", %s %.4f", name_of(record.kind), record.seconds.back());
  std::printf("; others %.1f %%\n", 100 * load.others(machine_.processes()));
  std::fflush(stdout);
}

std::vector<double> Comparison::over_rounds(
    const std::function<double(const Round&)>& number) const {
  std::vector<double> numbers;
  for (const Round& round : rounds_) numbers.push_back(number(round));
  return numbers;
}

void Comparison::report_stages() const {
  std::printf("%s, %d chunks of %ld; the stages alone, one after the other: %s s\n",
      size_.model.c_str(), chunks_, static_cast<long>(size_.micro_batch),
      with_range("%.3f", over_rounds([&](const Round& round) {
        return whole(round.lone, chunks_);
      })).c_str());
  for (std::size_t stage = 0; stage < balance_.size(); ++stage) {
    const auto milliseconds = [&](double StageCosts::*part) {
      return with_range(
          "%.1f", over_rounds([&](const Round& round) { return 1e3 * round.lone[stage].*part; }));
    };
    std::printf(
        "  stage %zu, %d layers, ms a micro-batch: forward %s, backward %s = input %s + weight %s;"
        " slower by %s when the other runs at once\n",
        stage, balance_[stage], milliseconds(&StageCosts::forward).c_str(),
        milliseconds(&StageCosts::backward).c_str(),
        milliseconds(&StageCosts::backward_input).c_str(),
        milliseconds(&StageCosts::backward_weight).c_str(),
        with_range("%.3f", over_rounds([&](const Round& round) {
          return round.at_once[stage].whole() / round.lone[stage].whole();
        })).c_str());
  }
}

void Comparison::report(const ScheduleRecord& record) const {
  std::printf("| %s | %s | %s | %.3f | %s | %s | %s | %s | %.0f | %s |\n", name_of(record.kind),
      with_range("%.3f", record.seconds).c_str(), with_range("%.3f", record.speed_ups).c_str(),
      record.bubble_bound, with_range("%.3f", record.of_bound).c_str(),
      with_range("%.3f", record.of_simulated).c_str(),
      record.of_at_once.empty() ? "-" : with_range("%.3f", record.of_at_once).c_str(),
      with_range("%.2f", record.cpu).c_str(), median(record.page_faults),
      megabytes(record.peak_bytes).c_str());
}

void Comparison::report() {
  for (ScheduleRecord& record : records_)
    record.peak_bytes = machine_.peak_bytes(work_, balance_of(record), options_of(record));
  if (!machine_.reports()) return;
  report_stages();
  std::printf(
      "| schedule | step, s | speed-up | bubble bound | share of it | share of the simulated time "
      "| "
      "simulated with both at once | CPU time / lone stages' | page faults | peak MB per stage |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const ScheduleRecord& record : records_) report(record);
}

}  // namespace lockstep::benchmark
