#include "lockstep/cli/flags/flag_parser.h"

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/suggest.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

class Layout : public CLI::Formatter {
 public:
  explicit Layout(std::string usage) : usage_(std::move(usage)) { column_width(34); }

  std::string make_usage(const CLI::App*, std::string) const override { return usage_ + "\n\n"; }

  std::string make_group(
      std::string group, bool positional, std::vector<const CLI::Option*> options) const override {
    // Without the empty line before it: there is one after each group already.
    return CLI::Formatter::make_group(std::move(group), positional, std::move(options)).substr(1);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_items_expected_max() == 0 ? "" : " " + option->get_type_name();
  }

 private:
  std::string usage_;
};

}  // namespace

void use_our_layout(CLI::App& app, const std::string& usage) {
  app.formatter(std::make_shared<Layout>(usage));
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.allow_extras();  // so that we, not the parser, answer what it does not know
}

FlagNames flag_names(const CLI::App& app) {
  FlagNames names;
  for (const CLI::Option* option : app.get_options()) {
    auto& kind = option->get_items_expected_max() == 0 ? names.alone : names.with_value;
    for (const std::string& name : option->get_lnames()) kind.insert("--" + name);
    for (const std::string& name : option->get_snames()) kind.insert("-" + name);
  }
  return names;
}

bool parse_flags(CLI::App& app, const std::string& verb, std::vector<std::string> flags) {
  std::reverse(flags.begin(), flags.end());  // the parser takes them from the back
  try {
    app.parse(flags);
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(concat(verb, ": ", error.what()));
  }
  const auto unknown = app.remaining();
  if (unknown.empty()) return true;
  const std::string name = unknown.front().substr(0, unknown.front().find('='));
  throw InvalidArgument(
      concat(verb, ": there is no flag ", name, did_you_mean(name, flag_names(app).all())));
}

}  // namespace lockstep::cli
