#include "bench/cli/plan/offers.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/enum_names.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

bool is_known(const std::string& precision) {
  return std::ranges::count(all_names<Precision>(), precision) > 0;
}

void check_movable(const plan::ModelProfile& profile) {
  check(is_known(profile.precision), "plan: the profile of ", printable(profile.model), " is in ",
      printable(profile.precision), ", and the rates of devices are known in ",
      joined(all_names<Precision>()), "; profile the model in one of these, or leave out --device");
}

// What is said of a device's rate is surer than what its data sheet gives.
plan::ModelProfile at_rate(plan::ModelProfile profile, double batch, double rate) {
  profile = profile.scaled_to(batch, batch / rate);
  profile.is_estimated = false;
  profile.is_of_products = false;
  profile.source = concat(rate, " samples/s with batches of ", batch,
      ", as --device-rate says; of the layers' shares and all else: ", profile.source);
  return profile;
}

// A rate alone leaves the latency.
plan::Link link_within(const PlanCommand& command, const plan::Link& usual) {
  return command.within.empty() ? usual : plan::parse_link(command.within, usual.latency);
}

Offer offer_of(
    const std::string& name, const plan::ModelProfile& measured, const PlanCommand& command) {
  const plan::Device& device = plan::device_of(name);
  Offer offer{plan::on_device(measured, device), command.question};
  plan::Machine& machine = offer.question.machine;
  machine.device = device.name;
  if (machine.memory_bytes == 0) machine.memory_bytes = device.memory_bytes;
  machine.within = link_within(command, device.within);
  if (const auto price = command.device_prices.find(name); price != command.device_prices.end())
    machine.place_price = price->second;
  if (const auto rate = command.device_rates.find(name); rate != command.device_rates.end())
    offer.profile = at_rate(std::move(offer.profile), offer.question.batch, rate->second);
  return offer;
}

}  // namespace

plan::ModelProfile in_asked_precision(plan::ModelProfile profile, const PlanCommand& command) {
  if (command.devices.empty()) return profile;
  check_movable(profile);
  if (command.precision.empty()) return profile;
  check(is_known(command.precision), "plan: --precision is ", joined(all_names<Precision>()),
      ", not ", printable(command.precision));
  return plan::in_precision(std::move(profile), command.precision);
}

void train_as_measured(const plan::ModelProfile& profile, PlanCommand& command) {
  const auto measured = profile.training.value_or(plan::MeasuredTraining{});
  if (command.plugin.empty()) command.plugin = measured.plugin;
  if (command.data.empty()) command.data = measured.data;
  if (command.cores_a_place == 0) command.cores_a_place = measured.cores_a_place;
  if (command.train_flags.empty()) command.train_flags = measured.flags;
  check(!profile.training || command.train_flags == measured.flags, "plan: the profile of ",
      printable(profile.model), " was measured with ",
      measured.flags.empty() ? "no flags after --" : "-- " + shell_text(measured.flags),
      ", which is what --confirm trains; leave them out, or measure with others");
}

std::vector<Offer> offers_of(const plan::ModelProfile& profile, const PlanCommand& command) {
  std::vector<Offer> offers;
  for (const std::string& name : command.devices)
    offers.push_back(offer_of(name, profile, command));
  if (!offers.empty()) return offers;
  offers.push_back({profile, command.question});
  offers.front().question.machine.within = link_within(command, profile.within);
  return offers;
}

}  // namespace lockstep::cli
