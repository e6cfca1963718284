#include <algorithm>

#include "bench/studies/ddp_scaling/study.h"
#include "bench/study/figure_of.h"
#include "bench/study/predicted_step.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/hosts.h"

namespace lockstep::bench::ddp_scaling {
namespace {

constexpr const char* kPublishedWith =
    "Python PyTorch's DDP on NVIDIA TITAN RTX GPUs, two on each node; an evaluation and a "
    "checkpoint after each epoch are in those times, so compare the column with both";
constexpr std::int64_t kGradientBytes = 4 * std::int64_t{11'227'812};  // ResNet18, 100 classes

struct PublishedTime {
  int nodes;
  int places;
  const char* started_by;
  double seconds;
};

// The study "Pytorch-DDP-Analysis" (Js2Hou), section Results. Its older launcher,
// torch.distributed.launch, stands beside ours; its two nodes were started by torchrun.
constexpr PublishedTime kPublished[] = {{1, 1, "train", 555.0834}, {1, 2, "run", 301.9986},
    {1, 2, "torchrun", 324.2550}, {2, 4, "hosts", 549.2544}, {2, 4, kHostsTorchrun, 549.2544}};

std::optional<Estimate> run_seconds(const Cell& cell) { return cell.estimate(kRunSeconds); }

std::optional<double> published(const Cell& cell) {
  return published_seconds(cell.nodes, cell.places, cell.started_by);
}

std::optional<double> seconds_alone(const Cells& cells) {
  const Cell* one = find(cells, 1, 1, "train");
  return one == nullptr ? std::nullopt : one->median(kRunSeconds);
}

std::optional<double> predicted_speed_up(const Cells& cells, const Cell& cell) {
  const auto predicted = predicted_seconds(cells, cell), alone = seconds_alone(cells);
  return predicted && alone ? std::optional(*alone / *predicted) : std::nullopt;
}

std::optional<double> efficiency(const Cells& cells, const Cell& cell) {
  const auto faster = speed_up(cells, cell);
  return faster ? std::optional(faster->median / cell.places) : std::nullopt;
}

// The start and the end of the processes: all but the training and what comes after its epochs.
std::optional<double> overhead_seconds(const Cell& cell) {
  std::vector<double> seconds;
  for (const Sample& sample : cell.result.samples) {
    const auto trained = sample.values.find("trained_seconds");
    if (sample.worked() && trained != sample.values.end()) {
      const auto between = sample.values.find("between_seconds");
      const double apart = between == sample.values.end() ? 0 : between->second;
      seconds.push_back(sample.seconds - trained->second - apart);
    }
  }
  return seconds.empty() ? std::nullopt : std::optional(median(seconds));
}

std::string note_of(const Cell& cell) {
  return noted({cell_note(cell.result, kRunSeconds), extrapolated_note(epoch_share(cell.result))});
}

// Why a column of this cell's row has no number.
std::string note_with_gaps(const Cells& cells, const Cell& cell) {
  const bool several = cell.places > 1, real = cell.link == "real";
  const auto run = run_seconds(cell);
  return noted({note_of(cell), published(cell) ? "" : "not in the study",
      several ? "" : "the baseline of the others",
      real ? "link's rate not known: no prediction" : "",
      several && !real && !predicted_seconds(cells, cell) ? "one place has no number" : "",
      run && run->count < 2 ? "one round: no interval" : ""});
}

std::string link_note(const Cells& cells) {
  const Cell* made =
      first_where(cells, [](const Cell& each) { return each.nodes > 1 && each.link != "real"; });
  if (made == nullptr) return "nodes: the real hosts that were named";
  return concat("nodes: hosts made within this machine, each with a link of ", made->link,
      " each way; the study does not say what its network was");
}

// From how many images an evaluation's time follows, where those are not the study's.
std::string evaluation_note(const Cells& cells) {
  const Cell* few = first_where(cells, [](const Cell& cell) {
    return cell.median("evaluated_images").value_or(kStudyTestImages) < kStudyTestImages;
  });
  if (few == nullptr) return "";
  return concat("evaluation: extrapolated from ", *few->median("evaluated_images"), " images to ",
      kStudyTestImages, "; a checkpoint takes what it took");
}

std::vector<std::string> notes_of(const Cells& cells) {
  const int pixels = cells.front().pixels;
  return {concat("published: ", kPublishedWith),
      "published beside lockstep run: PyTorch's older launcher, torch.distributed.launch; beside "
      "four places on two nodes: torchrun",
      "predicted: one place's time here / places; with several nodes by lockstep plan: "
      "44.9 MB of gradients a step pass each link once, while backward goes on",
      link_note(cells), oversubscribed_note(any_oversubscribed(cells)),
      any_oversubscribed(cells) ? "the prediction does not hold for oversubscribed cells" : "",
      least_epoch_share(cells) < 1
          ? "extrapolated: two epochs cut to that part; ten whole ones follow the second one's "
            "rate, and the first's longer start"
          : "",
      pixels < kStudyPixels
          ? concat("images of ", pixels, " x ", pixels, " pixels in place of the study's ",
                kStudyPixels, ": less computing for the same gradients, so a network weighs more")
          : "",
      evaluation_note(cells)};
}

TableOf<Cell> table_of(const char* id, const char* title) {
  TableOf<Cell> table(id, title);
  table.number("places", &Cell::places).number("nodes", &Cell::nodes);
  table.name("started by", &Cell::launcher);
  return table;
}

std::string category_of(const Cell& cell) {
  const char* mark = cell.result.oversubscribed ? " (oversubscribed)" : "";
  return concat(cell.name(), ", ", cell.started_by, mark);
}

// What a reader must know who sees nothing but the picture.
std::string picture_note(const Cells& cells, const std::string& beginning) {
  return concat(beginning, medians_note(most_rounds(cells, kRunSeconds)),
      extrapolated_text(least_epoch_share(cells)));
}

auto estimate_of(const char* name) {
  return [name](const Cell& cell) { return cell.estimate(name); };
}

page::Table epochs_table(const Cells& cells) {
  return table_of("ddp-scaling-epochs", "Epochs, and what they do not include")
      .number("first epoch [s]", estimate_of("first_epoch_seconds"))
      .number("later epoch [s]", estimate_of(kLaterEpoch))
      .number("images/s", estimate_of("samples_per_s"), decimals<0>)
      .number("train loss", estimate_of("train_loss"), decimals<3>)
      .number("evaluation [s]", estimate_of("evaluation_seconds"))
      .number("checkpoint [s]", estimate_of("checkpoint_seconds"))
      .number("overhead [s]", overhead_seconds)
      .name("note", note_of)
      .notes({"overhead: start and end of all processes, which the times of epochs do not "
              "include; "
              "that of torchrun is mostly Python's and PyTorch's; train loss: of the last epoch",
          "evaluation: of the test set after each epoch; checkpoint: for which training "
          "waits, its writing goes on beside the next epoch",
          evaluation_note(cells)})
      .of(cells);
}

bool is_spread(const Cell& cell) { return cell.places > 1; }

}  // namespace

std::string Point::name() const {
  const std::string text = concat(places, places == 1 ? " place" : " places");
  return nodes == 1 ? text + " on one node" : concat(text, " on ", nodes, " nodes");
}

std::string Point::launcher() const {
  if (started_by == kHostsTorchrun) return "torchrun on lockstep hosts";
  return started_by == "torchrun" ? started_by : "lockstep " + started_by;
}

std::optional<double> published_seconds(int nodes, int places, const std::string& started_by) {
  for (const PublishedTime& time : kPublished) {
    if (time.nodes == nodes && time.places == places && time.started_by == started_by) {
      return time.seconds;
    }
  }
  return std::nullopt;
}

std::int64_t study_steps(int places) {
  const std::int64_t a_step = std::int64_t{kStudyBatch} * places;
  return kStudyEpochs * ((kStudyImages + a_step - 1) / a_step);
}

double seconds_on_link(int places, double bits_per_second) {
  const double share = 2.0 * (places - 1) / places;
  const double bytes = share * static_cast<double>(kGradientBytes);
  return static_cast<double>(study_steps(places)) * bytes * 8 / bits_per_second;
}

const Cell* find(const Cells& cells, int nodes, int places, const std::string& started_by) {
  return first_where(cells, [&](const Cell& each) {
    return each.nodes == nodes && each.places == places && each.started_by == started_by;
  });
}

std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell) {
  if (!is_spread(cell)) return std::nullopt;
  return ratio_of(find(cells, 1, 1, "train"), &cell, kRunSeconds);
}

std::optional<double> published_speed_up(const Cell& cell) {
  const auto one = published_seconds(1, 1, "train"), these = published(cell);
  if (!one || !these || !is_spread(cell)) return std::nullopt;
  return *one / *these;
}

std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell) {
  const auto alone = seconds_alone(cells);
  if (!alone || !is_spread(cell) || cell.link == "real") return std::nullopt;
  if (cell.nodes == 1) return *alone / cell.places;
  // Each place makes steps as one alone does, only fewer.
  const plan::WholeStep step{.seconds = *alone / static_cast<double>(study_steps(1)),
      .parameter_bytes = static_cast<double>(kGradientBytes)};
  const plan::Machine machine{.nodes = cell.nodes,
      .places = cell.places / cell.nodes,
      .within = {.core_share = 1},
      .between = {.bytes_per_second = static_cast<double>(launch::parse_rate(cell.link)) / 8}};
  return static_cast<double>(study_steps(cell.places)) *
         predicted_step(step, machine, {.replicas = cell.places}, cell.places);
}

std::vector<page::Table> tables(const Cells& cells) {
  const auto predicted = [&](const Cell& cell) { return predicted_seconds(cells, cell); };
  const auto faster = [&](const Cell& cell) { return speed_up(cells, cell); };
  const auto note = [&](const Cell& cell) { return note_with_gaps(cells, cell); };
  return {table_of("ddp-scaling-run-times", "Seconds of ten epochs")
              .number("published [s]", published)
              .number("here, with evaluation and checkpoint [s]", estimate_of(kWholeSeconds))
              .estimate("here, training alone [s]", "interval [s]", run_seconds)
              .number("predicted [s]", predicted)
              .name("note", note)
              .notes(notes_of(cells))
              .notes(whole_reasons(results_of(cells)))
              .of(cells),
      table_of("ddp-scaling-speed-up", "How many times as fast as one place")
          .number("published", published_speed_up, ratio_text)
          .estimate("here", "interval", faster, ratio_text)
          .number(
              "predicted", [&](const Cell& cell) { return predicted_speed_up(cells, cell); },
              ratio_text)
          .number(
              "efficiency", [&](const Cell& cell) { return efficiency(cells, cell); }, percent_text)
          .name("note", note)
          .notes({"of ten epochs; efficiency: speed-up here / places"})
          .of(select(cells, is_spread)),
      epochs_table(cells)};
}

std::vector<plot::Figure> figures(const Cells& cells) {
  const std::string x = "places, nodes, launcher";
  return {BarsOf<Cell>("ddp-scaling-run-times", "Ten epochs of ResNet18 on CIFAR-100", x,
              "ten epochs [s]", category_of)
              .bars("here", run_seconds)
              .bars("predicted", [&](const Cell& cell) { return predicted_seconds(cells, cell); })
              .of(cells, picture_note(cells,
                             "Predicted: one place's time / places, and the gradients over the "
                             "link beside backward. ")),
      BarsOf<Cell>(
          "ddp-scaling-speed-up", "How many times as fast as one place", x, "speed-up", category_of)
          .bars("here", [&](const Cell& cell) { return speed_up(cells, cell); })
          .bars("published", published_speed_up)
          .of(select(cells, is_spread), picture_note(cells, "Published: DDP on TITAN RTX GPUs. "))};
}

}  // namespace lockstep::bench::ddp_scaling
