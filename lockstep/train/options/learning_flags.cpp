#include "lockstep/train/options/train_flags.h"

namespace lockstep {

namespace {

using Options = TrainOptions;
using Text = const std::string&;

void read_milestones(Options& options, const FlagSpec& flag, Text text) {
  auto& milestones = options.optimizer.schedule.decay_milestones;
  milestones.clear();
  for (const std::string& piece : split(text, ',')) {
    const auto epoch = parse_number<std::int64_t>(piece);
    check(epoch && *epoch > 0 && static_cast<double>(*epoch) <= kMostEpochs, flag.verb, ": ",
        flag.name, " must be a comma-separated list of epochs: ", text);
    milestones.push_back(*epoch);
  }
}

FlagValue written_milestones(const Options& options) {
  std::vector<std::string> epochs;
  for (const std::int64_t epoch : options.optimizer.schedule.decay_milestones)
    epochs.push_back(std::to_string(epoch));
  return written_value(epochs);
}

// Whether they are in range is for check_optimizer() to say.
void read_betas(Options& options, const FlagSpec& flag, Text text) {
  const auto pieces = split(text, ',');
  const auto first = parse_number<double>(pieces.front());
  const auto second = parse_number<double>(pieces.back());
  check(pieces.size() == 2 && first && second, flag.verb, ": ", flag.name,
      " must be two numbers, such as ", *flag.usual, ": ", text);
  options.optimizer.betas = AdamBetas{*first, *second};
}

FlagValue text_of_betas(const std::optional<AdamBetas>& betas) {
  return betas ? FlagValue(text_of(betas->first) + "," + text_of(betas->second)) : FlagValue();
}

template <typename Member>
Flag<Options> rate_flag(const char* name, const char* value, const char* help, Member member) {
  return flag(name, value, help, &Options::optimizer, &OptimizerSettings::schedule, member);
}

EmaSettings& ema_of(Options& options, const FlagSpec& flag) {
  check(options.ema.has_value(), flag.verb, ": ", flag.name, " needs --model-ema");
  return *options.ema;
}

}  // namespace

FlagGroup<TrainOptions> optimizer_group() {
  using Set = OptimizerSettings;
  constexpr auto kPath = &Options::optimizer;
  const auto read_kind = [](Options& options, const FlagSpec& flag, Text text) {
    OptimizerKind kind{};
    read_value(flag, text, kind);
    options.optimizer = default_settings(kind);
  };
  const auto sgd = default_settings(OptimizerKind::kSgd);
  const auto adamw = default_settings(OptimizerKind::kAdamW);
  return {"Optimizer",
      {// Before its settings: it brings their defaults.
          flag_by<Options>("--opt", "NAME", "{}", read_kind,
              [](const Options& options) { return written_value(options.optimizer.kind); })
              .one_of(all_names<OptimizerKind>()),
          flag("--momentum", "X", "for sgd", kPath, &Set::momentum)
              .from(0)
              .below(1)
              .usually(sgd.momentum),
          flag("--weight-decay", "X", "weight decay: L2, decoupled for adamw", kPath,
              &Set::weight_decay)
              .from(0)
              .usually(concat("adam, sgd ", sgd.weight_decay, "; adamw ", adamw.weight_decay)),
          flag("--weight-decay-on", "WHAT",
              "parameters that decay: {}; weights leaves out biases and norm layers", kPath,
              &Set::weight_decay_on),
          flag("--opt-eps", "X", "for adam and adamw: added to the root of the squares' average",
              kPath, &Set::eps)
              .above(0)
              .usually(concat("adam ", usual_eps(OptimizerKind::kAdam), "; adamw ",
                  usual_eps(OptimizerKind::kAdamW))),
          flag_by<Options>("--opt-betas", "X,X",
              "for adam and adamw: shares that the averages of gradients and of their squares "
              "keep, "
              "each at least 0 and below 1",
              read_betas,
              [](const Options& options) { return text_of_betas(options.optimizer.betas); })
              .usually(text_of(text_of_betas(AdamBetas()))),
          flag("--clip-grad", "X", "limit for the norm of all gradients together", kPath,
              &Set::clip_grad)
              .above(0)
              .usually("no limit"),
          flag_on("--shard-optimizer",
              "divide the optimizer's state and work among the replicas (ZeRO stage 1)", kPath,
              &Set::sharded)
              .may_change(),
          flag("--grad-accum-steps", "N", "batches per replica in one optimizer step",
              &Options::grad_accum_steps)
              .from(1)
              .to(kMostEpochs),
          flag("--loss", "NAME",
              joined(nn::loss_names()) +
                  " (of one-hot labels) or one of --plugin; evaluations measure it, too",
              &Options::loss)
              .unless_usual(),
          flag("--smoothing", "X", "label smoothing of the training loss, for cross-entropy",
              &Options::smoothing)
              .from(0)
              .below(1)}};
}

FlagGroup<TrainOptions> rate_group() {
  using Set = OptimizerSettings;
  using Lr = LrSettings;
  const auto adam = default_settings(OptimizerKind::kAdam).lr;
  const auto sgd = default_settings(OptimizerKind::kSgd).lr;
  const LrSchedule schedule;
  const PlateauRule plateau;
  return {"Learning rate",
      {flag(
           "--lr", "X", "learning rate at the start of the schedule", &Options::optimizer, &Set::lr)
              .above(0)
              .usually(concat("adam, adamw ", adam, "; sgd ", sgd)),
          flag("--lr-scale", "RULE",
              "multiply --lr by 1, by global batch / --batch-size, or by its square root: {}",
              &Options::optimizer, &Set::lr_scale),
          rate_flag("--sched", "NAME", "{}", &Lr::kind),
          rate_flag("--sched-on-updates", "",
              "change the rate at every step instead of every epoch", &Lr::on_updates),
          rate_flag("--warmup-epochs", "N",
              "epochs in which the rate rises to --lr, before the schedule begins",
              &Lr::warmup_epochs)
              .from(0)
              .to(kMostEpochs)
              .usually(0),
          rate_flag("--warmup-steps", "N", "the same in steps; the schedule then counts steps, too",
              &Lr::warmup_steps)
              .from(0)
              .to(kMostSteps),
          rate_flag("--warmup-lr", "X", "learning rate at the start of the warm-up", &Lr::warmup_lr)
              .from(0)
              .usually(text_of(Lr::kWarmupLr)),
          rate_flag("--min-lr", "X", "lower limit of the learning rate", &Lr::min_lr)
              .from(0)
              .usually(schedule.min_lr),
          rate_flag("--decay-epochs", "N", "for step: epochs between two falls", &Lr::decay_epochs)
              .from(1)
              .to(kMostEpochs),
          flag_by<Options>("--decay-milestones", "N,N",
              "for multistep: epochs after which the rate falls", read_milestones,
              written_milestones),
          rate_flag("--decay-rate", "X", "factor of each fall", &Lr::decay_rate)
              .above(0)
              .to(1)
              .usually(concat(Lr::kDecayRate, "; exponential ", Lr::kExponentialRate)),
          rate_flag("--poly-power", "X",
              "for poly: exponent of the share of the training that remains", &Lr::power)
              .above(0)
              .usually(schedule.power),
          rate_flag("--patience-epochs", "N",
              "for plateau: evaluations without improvement to wait for", &Lr::patience_epochs)
              .from(0)
              .to(kMostEpochs)
              .usually(plateau.patience),
          rate_flag("--cooldown-epochs", "N",
              "for plateau: evaluations that do not count after a fall", &Lr::cooldown_epochs)
              .from(0)
              .to(kMostEpochs)
              .usually(plateau.cooldown),
          rate_flag("--pct-start", "X",
              "for onecycle: share of the training in which the rate rises", &Lr::pct_start)
              .from(0)
              .to(1)
              .usually(schedule.pct_start),
          rate_flag("--div-factor", "X", "for onecycle: --lr / the first rate", &Lr::div_factor)
              .above(0)
              .usually(schedule.div_factor),
          rate_flag("--final-div-factor", "X", "for onecycle: the first rate / the last",
              &Lr::final_div_factor)
              .above(0)
              .usually(schedule.final_div_factor)}};
}

FlagGroup<TrainOptions> average_group() {
  return {"Averaged and best weights",
      {flag_by<Options>(
           "--model-ema", "", "keep a moving average of the weights, and evaluate it too",
           [](Options& options, const FlagSpec&, Text) { options.ema.emplace(); },
           [](const Options& options) { return written_value(options.ema.has_value()); }),
          flag_by<Options>(
              "--model-ema-decay", "X", "share of the average that each step keeps",
              [](Options& options, const FlagSpec& flag, Text text) {
                read_value(flag, text, ema_of(options, flag).decay);
              },
              [](const Options& options) {
                return options.ema ? FlagValue(options.ema->decay) : FlagValue();
              })
              .real()
              .from(0)
              .below(1)
              .usually(EmaSettings{}.decay),
          flag_by<Options>(
              "--model-ema-warmup", "",
              "start with a small decay and raise it to --model-ema-decay",
              [](Options& options, const FlagSpec& flag, Text) {
                ema_of(options, flag).warmup = true;
              },
              [](const Options& options) {
                return written_value(options.ema && options.ema->warmup);
              }),
          flag("--eval-metric", "NAME", "what decides which epoch is best: {}",
              &Options::eval_metric)}};
}

}  // namespace lockstep
