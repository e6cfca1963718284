#pragma once

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/output/output_plan.h"

namespace lockstep::launch {

/// Writes to the launcher's own output and error without ever waiting for their reader.
///
/// What the reader cannot take yet is kept; when much is kept, `has_room` says that no more should
/// be read from the workers, so that they wait and no line is lost. A reader that is gone takes no
/// more: the text is dropped.
class Console {
 public:
  Console(int output, int errors) : output_{output, {}, 0}, errors_{errors, {}, 0} {}

  /// Appends text to a stream and writes what can be written at once.
  void write(Stream stream, std::string_view text);

  /// Writes what can be written at once.
  void flush();

  bool has_room() const;
  bool empty() const { return output_.size() == 0 && errors_.size() == 0; }

  /// Adds the descriptors for whose readers there is text.
  void add_to(std::vector<pollfd>& waited) const;

 private:
  struct Queue {
    int descriptor;
    std::string text;
    std::size_t start;
    std::size_t size() const { return text.size() - start; }
  };

  static void flush(Queue& queue);

  Queue output_;
  Queue errors_;
};

}  // namespace lockstep::launch
