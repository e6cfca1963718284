#include <string>
#include <vector>

#include "lockstep/data/synthetic/set_file.h"
#include "lockstep/data/synthetic/set_writers.h"
#include "lockstep/data/synthetic/synthetic.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kSideOfMnist = 28;

/// Gives an IDX file's header for unsigned bytes: 0, 0, 8, the number of counts, the counts.
std::vector<std::uint8_t> idx_header(const std::vector<std::int64_t>& counts) {
  std::vector<std::uint8_t> header{0, 0, 8, static_cast<std::uint8_t>(counts.size())};
  for (const std::int64_t count : counts) {
    for (const int shift : {24, 16, 8, 0}) {
      header.push_back(static_cast<std::uint8_t>(count >> shift));
    }
  }
  return header;
}

Written write_part(const std::filesystem::path& folder, const SetPlan& plan, bool train) {
  const std::int64_t count = train ? plan.train : plan.test;
  const std::string prefix = train ? "train" : "t10k";
  const std::string ending = plan.gzip ? ".gz" : "";
  SetFile images(folder / (prefix + "-images-idx3-ubyte" + ending), plan.gzip);
  SetFile labels(folder / (prefix + "-labels-idx1-ubyte" + ending), plan.gzip);
  images.write(idx_header({count, kSideOfMnist, kSideOfMnist}));
  labels.write(idx_header({count}));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = i % plan.classes;
    images.write(synthetic_image(
                     synthetic_class(label, plan.classes),
                     {.seed = plan.seed, .train = train, .index = i}, {kSideOfMnist, kSideOfMnist},
                     1)
                     .pixels);
    labels.write(std::vector{static_cast<std::uint8_t>(label)});
    plan.drawn();
  }
  return {2, images.close() + labels.close()};
}

}  // namespace

Written write_mnist_files(const std::filesystem::path& folder, const SetPlan& plan) {
  const Written train = write_part(folder, plan, true);
  const Written test = write_part(folder, plan, false);
  return {train.files + test.files, train.bytes + test.bytes};
}

}  // namespace lockstep::data
