"""Asks `lockstep plan` about the cases and questions of plan_accuracy.py."""

import statistics

from commands import last_json, output_of

NUMBERS = {"predicted": "step_seconds", "least": "least_seconds", "most": "most_seconds", "predicted_bytes": "memory_bytes"}


def answer_of(lockstep, profile, batch, places, ways, flags):
    command = [lockstep, "plan", "--profile", str(profile), "--batch", str(batch), "--places", places, "--ways", ways]
    return last_json(output_of([*command, *flags, "--json"]))


def choice_of(lockstep, case, profile, links):
    flags = []
    if "link" in case:
        flags += ["--nodes", "2", "--link", str(links[case["link"]]), "--made-hosts"]
    if "chunks" in case:
        flags += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    return answer_of(lockstep, profile, case["batch"], str(case["places"]), case["way"], flags)["choices"][0]


def predict(lockstep, case, profiles, links):
    """Adds the medians of what the profiles predict."""
    choices = [choice_of(lockstep, case, profile, links) for profile in profiles]
    for key, name in NUMBERS.items():
        case[key] = statistics.median(choice[name] for choice in choices)


def label_of(case):
    """Returns the planner's name of a way on one host."""
    several = f" x {case['places']}" if case["places"] > 1 else ""
    return case["way"] + several + (f" ({case['schedule']}, {case['chunks']} chunks)" if "chunks" in case else "")


def picks_of(lockstep, ways, profile):
    """Returns which of a question's ways the planner takes, and before it those that it cannot tell apart from that one."""
    flags = []
    cut = [way for way in ways if "chunks" in way]
    if cut:
        flags = ["--schedule", ",".join(way["schedule"] for way in cut), "--chunks", str(cut[0]["chunks"])]
    places = ",".join(str(count) for count in sorted({way["places"] for way in ways}))
    names = ",".join(sorted({way["way"] for way in ways}))
    answer = answer_of(lockstep, profile, ways[0]["batch"], places, names, flags)
    if len(answer["choices"]) != len(ways):
        raise ValueError(f"{len(answer['choices'])} ways are planned, not {len(ways)}: {answer['impossible']}")
    numbers = [number for number in answer["equals"] if number != answer["pick"]] + [answer["pick"]]
    labels = [answer["choices"][number]["way"] for number in numbers]
    return [next(way for way in ways if label_of(way) == label) for label in labels]
