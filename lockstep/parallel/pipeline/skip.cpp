#include "lockstep/parallel/pipeline/skip.h"

#include <set>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

thread_local SkipTable* current_table = nullptr;

SkipTable& table() {
  thread_local SkipTable own;
  return current_table != nullptr ? *current_table : own;
}

// Calls visit(module) for the layer and every module inside it.
void visit_modules(const Layers& layers, const auto& visit) {
  for (const auto& layer : layers) {
    for (const auto& module : layer.value().ptr()->modules()) visit(module);
  }
}

class SkipReader {
 public:
  void read(const std::shared_ptr<torch::nn::Module>& module) {
    if (const auto stash = std::dynamic_pointer_cast<StashImpl>(module)) add(stash->skip_name());
    if (const auto pop = std::dynamic_pointer_cast<PopImpl>(module)) remove(pop->skip_name());
  }
  const std::set<std::string>& open() const { return open_; }

 private:
  void add(const std::string& name) {
    check(used_.insert(name).second, "pipeline: two Stash layers have the name ", name);
    open_.insert(name);
  }
  void remove(const std::string& name) {
    check(open_.erase(name) == 1, "pipeline: the Pop ", name, " has no unused Stash before it");
  }

  std::set<std::string> open_, used_;
};

}  // namespace

torch::Tensor StashImpl::forward(torch::Tensor input) {
  table()[name_] = input;
  return input;
}

torch::Tensor PopImpl::forward(torch::Tensor input) {
  auto kept = table().extract(name_);
  if (kept.empty()) throw Error(concat("Pop: nothing was kept under the name ", name_));
  return join_ ? join_(std::move(input), kept.mapped()) : input + kept.mapped();
}

SkipScope::SkipScope(SkipTable& table) : before_(std::exchange(current_table, &table)) {}

SkipScope::~SkipScope() { current_table = before_; }

std::vector<std::vector<std::string>> skips_across(const std::vector<Layers>& stages) {
  std::vector<std::vector<std::string>> crossing;
  SkipReader reader;
  for (const Layers& stage : stages) {
    visit_modules(stage, [&](const auto& module) { reader.read(module); });
    crossing.emplace_back(reader.open().begin(), reader.open().end());
  }
  check(reader.open().empty(), "pipeline: the Stash ",
      reader.open().empty() ? "" : *reader.open().begin(), " has no Pop after it");
  crossing.pop_back();
  return crossing;
}

}  // namespace lockstep
