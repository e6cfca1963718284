"""The cases and questions of plan_accuracy.py, drawn by a seed: any first part of them is a sample of all."""

import random

# Name, batches to measure, batches to draw from, more flags.
MODELS = {
    "mnist-small": ([512, 384, 256, 128, 64, 32, 16], [80, 96, 160, 192, 288, 320, 448], []),
    "mnist-large": ([128, 96, 64, 32, 16, 8, 4], [24, 40, 48, 72, 80, 112], []),
    "resnet18": ([128, 96, 64, 32, 16, 8, 4], [24, 40, 48, 72, 80, 112], ["--image-size", "32"]),
    "resnet18-cifar": ([64, 48, 32, 16, 8, 4], [12, 20, 24, 40, 56], ["--image-size", "32"]),
    "vgg11": ([32, 24, 16, 8, 4], [12, 20, 28], ["--image-size", "32", "--opt", "sgd"]),
    "resnet50": ([32, 24, 16, 8, 4], [12, 20, 28], ["--image-size", "64"]),
}
RATES = ["100mbit", "1gbit", "10gbit"]
SCHEDULES = ["gpipe", "1f1b", "zero-bubble"]


def with_schedule(generator, case):
    if case["way"] == "pp":
        case["schedule"] = generator.choice(SCHEDULES)
        case["chunks"] = generator.choice([chunks for chunks in (2, 4, 8) if case["batch"] % chunks == 0])
    return case


def draw_case(generator, models, places, links):
    model = generator.choice(models)
    case = {"model": model, "batch": generator.choice(MODELS[model][1])}
    if links and generator.random() < 1 / 3:
        return {**case, "way": "ddp", "places": generator.choice([1, 2]), "link": generator.choice(links)}
    count = generator.choice(places)
    way = "serial" if count == 1 else generator.choice(["dp", "ddp", "mp", "pp"])
    return with_schedule(generator, {**case, "way": way, "places": count})


def replicas_of(case):
    nodes = 2 if "link" in case else 1
    return nodes * case["places"] if case["way"] in ("dp", "ddp") else 1


def draw_cases(number, seed, models, places, links):
    generator, cases = random.Random(seed), []
    for _ in range(100000):
        if len(cases) == number:
            break
        case = draw_case(generator, models, places, links)
        if case["batch"] % replicas_of(case) == 0 and case not in cases:
            cases.append(case)
    return cases


def ways_of_question(model, batch, places):
    ways = [{"way": way} for way in ("dp", "ddp", "mp")]
    ways += [{"way": "pp", "schedule": schedule, "chunks": 4} for schedule in SCHEDULES if batch % 4 == 0]
    cases = [{"model": model, "batch": batch, "places": places, **way} for way in ways]
    return [{"model": model, "batch": batch, "places": 1, "way": "serial"}] + cases


def draw_questions(number, seed, models, places):
    generator = random.Random(seed + 1)
    several = [count for count in places if count > 1]
    questions = [(model, batch, count) for model in models for batch in MODELS[model][1] for count in several if batch % count == 0]
    return [ways_of_question(*each) for each in generator.sample(questions, min(number, len(questions)))]


def name_of(case):
    schedule = f" {case['schedule']} {case['chunks']}" if "chunks" in case else ""
    hosts = f"2 hosts, {case['link']} x " if "link" in case else "x "
    return f"{case['model']:15} {case['way']:6} {hosts}{case['places']}  batch {case['batch']:4}{schedule}"


def key_of(case):
    """Returns the name of a case in a file, whatever else is known of it."""
    return " ".join(name_of(case).split())
