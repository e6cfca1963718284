#include "lockstep/formats/export/origin.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::exported {
namespace {

// Of each part of a line: messages are made for each argument of each node.
constexpr std::size_t kMostShown = 120;

/// A frame in a trace of Python: `  File "net.py", line 7, in forward`, and the line below it.
struct Frame {
  std::string_view path, number, function, code;
};

std::string_view without_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ')));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// Takes what stands before the next `end` away from the text, which is empty then if there is none.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const std::size_t size = text.find(end);
  const std::string_view taken = text.substr(0, size);
  text.remove_prefix(size == std::string_view::npos ? text.size() : size + end.size());
  return taken;
}

std::vector<Frame> frames_of(std::string_view trace) {
  constexpr std::string_view kFile = "File \"";
  std::vector<Frame> frames;
  while (!trace.empty()) {
    std::string_view line = without_blanks(take_until(trace, "\n"));
    if (line.starts_with(kFile)) {
      line.remove_prefix(kFile.size());
      Frame frame{.path = take_until(line, "\", line ")};
      frame.number = take_until(line, ", in ");
      frame.function = line;
      frames.push_back(frame);
    } else if (!frames.empty() && frames.back().code.empty()) {
      frames.back().code = line;
    }
  }
  return frames;
}

bool is_of_torch(std::string_view path) {
  return path.find("-packages/torch/") != std::string_view::npos || path.starts_with("torch/");
}

// `layers.0,torch.nn.modules.container.Sequential`; a type may have commas in brackets.
std::string_view take_field(std::string_view& entry) {
  int open = 0;
  for (std::size_t i = 0; i < entry.size(); ++i) {
    const char letter = entry[i];
    open += (letter == '[' || letter == '(') - (letter == ']' || letter == ')');
    if (letter != ',' || open != 0) continue;
    const std::string_view field = entry.substr(0, i);
    entry.remove_prefix(i + 1);
    return field;
  }
  return std::exchange(entry, {});
}

}  // namespace

std::string source_line(std::string_view stack_trace) {
  const std::vector<Frame> frames = frames_of(stack_trace);
  if (frames.empty()) return "";
  const auto own = std::find_if(
      frames.rbegin(), frames.rend(), [](const Frame& frame) { return !is_of_torch(frame.path); });
  const Frame& frame = own == frames.rend() ? frames.back() : *own;
  const std::string_view file = frame.path.substr(frame.path.rfind('/') + 1);
  const char* const cut = frame.code.size() > kMostShown ? "..." : "";
  return printable_path(concat(file.substr(0, kMostShown), ':', frame.number.substr(0, kMostShown),
      ", in ", frame.function.substr(0, kMostShown), frame.code.empty() ? "" : ": ",
      frame.code.substr(0, kMostShown), cut));
}

std::vector<ExportedModule> modules_of(std::string_view stack) {
  // Stands where a pass of PyTorch's made the node.
  constexpr std::string_view kNone = "_empty_nn_module_stack_from_metadata_hook";
  std::vector<ExportedModule> modules;
  while (!stack.empty()) {
    std::string_view entry = take_until(stack, ";");
    if (entry.empty() || take_field(entry) == kNone) continue;
    const std::string_view path = take_field(entry);
    modules.push_back({std::string(path), std::string(entry)});
  }
  return modules;
}

}  // namespace lockstep::exported
