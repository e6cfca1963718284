#include "lockstep/train/record/run_recorder.h"

#include "lockstep/train/options/run_configuration.h"

namespace lockstep {

RunRecorder::RunRecorder(
    const TrainOptions& options, const std::vector<std::string>& command,
    const std::string& environment_json)
    : directory_(options.output, options.resume),
      metrics_(directory_.file("metrics.jsonl"), continues(options.output, options.resume)) {
  directory_.write("config.toml", config_toml(options));
  directory_.write("command.txt", shell_text(command) + "\n");
  directory_.write("env.json", environment_json + "\n");
}

void RunRecorder::finish(const RunSummary& summary) const {
  directory_.write("summary.json", to_json(summary) + "\n");
}

}  // namespace lockstep
