#include "tests/process/resumed_run.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>

#include "tests/process/train_idx_files.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

// What must not depend on lost lives: of each (split, step) the record of the last one, as readers
// take it, without what was measured by a clock.
std::map<std::string, Json> course_of(const std::string& run) {
  std::map<std::string, Json> course;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    Json kept;
    for (const char* field : {"epoch", "loss", "accuracy", "accuracy5", "lr", "loss_scale"})
      kept[field] = record.value(field, Json());
    course[record["split"].get<std::string>() + " " + record["step"].dump()] = kept;
  }
  return course;
}

Json epochs_of(const Json& summary) {
  Json epochs = summary["epochs"];
  for (Json& epoch : epochs)
    for (const char* measured : {"train_seconds", "samples_per_s"}) epoch.erase(measured);
  return epochs;
}

// Of a run in one process that is the command itself.
pid_t rank_of(const std::string& run, int number, const TrainCommand& command) {
  for (const pid_t process : processes_with("lockstep-train")) {
    const std::string line = contents("/proc/" + std::to_string(process) + "/cmdline");
    if (line.find(run) == std::string::npos) continue;
    if (process == command.pid() || variable_of(process, "RANK") == std::to_string(number))
      return process;
  }
  return -1;
}

}  // namespace

// The last batch of an epoch has fewer samples than the others.
void ResumedRun::SetUp() { write_idx_files(data_.path(), 204, 40); }

Json ResumedRun::summary(const std::string& name) const {
  return Json::parse(contents(run(name) + "/summary.json"));
}

std::int64_t ResumedRun::lines(const std::string& name) const {
  const std::string text = contents(run(name) + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

ResumedRun::Words ResumedRun::words(const std::string& name, const Words& more) const {
  Words all = {
      "--data",
      "mnist:" + data_.path(),
      "--output",
      run(name),
      "--batch-size",
      "8",
      "--epochs",
      "4",
      "--log-interval",
      "4",
      "--snapshot-interval",
      "3steps"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Ended ResumedRun::go_on(const std::string& name, Words more) const {
  more.insert(more.end(), {"--resume", "auto"});
  return train(words(name, more));
}

Ended ResumedRun::interrupt(
    const std::string& name, const Words& more, int signal, int rank, std::int64_t many) const {
  TrainCommand command(folder_.path(), words(name, more));
  EXPECT_TRUE(eventually([&] { return lines(name) >= many; })) << contents(command.err_path());
  const pid_t victim = rank == kCommand ? command.pid() : rank_of(run(name), rank, command);
  EXPECT_GT(victim, 0) << "the run was over before the signal: " << contents(command.err_path());
  if (victim > 0) {
    EXPECT_EQ(::kill(victim, signal), 0);
  }
  return command.wait();
}

void ResumedRun::expect_same(const std::string& a, const std::string& b) const {
  EXPECT_EQ(course_of(run(a)), course_of(run(b)));
  const Json one = summary(a), other = summary(b);
  for (const char* field :
       {"parameters_hash", "steps", "skipped_steps", "best", "test_loss", "test_accuracy"})
    EXPECT_EQ(one[field], other[field]) << field;
  EXPECT_EQ(epochs_of(one), epochs_of(other));
  for (const char* file : {"model.safetensors", "best.safetensors", "model-ema.safetensors"})
    EXPECT_TRUE(contents(run(a) + "/" + file) == contents(run(b) + "/" + file)) << file;
}

}  // namespace lockstep::testing
