#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/planning/measure_profile.h"
#include "lockstep/plan/answer.h"

namespace lockstep::cli {

/// A request to `lockstep plan`.
struct PlanCommand {
  /// Empty: that of the profile; so are the plugin, the data and the precision.
  std::string model = "mnist-small";
  std::string plugin;
  std::string data = "mock:constant";
  std::string precision = "32";
  int cores_a_place = 1;       ///< 0: as the profile was measured
  std::string profile;         ///< file, or a model whose profile is shipped; empty: measured first
  bool takes_shipped = false;  ///< whatever file has the model's name
  std::vector<std::string> devices;             ///< that the costs are moved to; empty: none
  std::map<std::string, double> device_rates;   ///< samples/s of one, by its name
  std::map<std::string, double> device_prices;  ///< of one for an hour, by its name
  bool measures_only = false;
  std::vector<int> batches;  ///< to measure, of a place
  int measure_rounds = 2;
  double measure_minutes = 0;  ///< about which measuring may take; 0: no limit
  std::vector<std::string> train_flags;
  plan::Question question;
  std::string within;  ///< link between places of a node; empty: the profile's, or the device's
  std::vector<std::string> scenarios;  ///< changes of the question
  bool explains = false;
  std::string beside;                      ///< folder of a run with a profile; empty: none
  int confirmed = 0;                       ///< choices to train for some steps
  bool trains = false;                     ///< afterwards, with the fastest
  std::vector<std::string> training = {};  ///< flags of that training, without its way
  std::string output;                      ///< a page
  std::string save;                        ///< file of the measured profile
  bool json = false;
  std::string asked = {};   ///< the command itself, as a shell takes it
  std::string remark = {};  ///< about how it was measured, once it was
};

/// Returns the models whose profiles come with the program, and such a profile as a file has it, or
/// none.
std::vector<std::string> shipped_models();
std::optional<std::string> shipped_profile(const std::string& model);

/// Returns the help of `lockstep plan`.
std::string plan_help();

/// Reads the flags; nothing when they ask for help. Throws InvalidArgument that names the flag.
std::optional<PlanCommand> parse_plan(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
