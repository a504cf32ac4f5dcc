"""Rules that do not depend on an engine: what is not known, limits, and files that no engine would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim import exports
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports import vllm_expert_map
from easybalance_sim.exports.checks import UNIVERSAL, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.plan.lint import ERROR, WARNING, Finding

EVERY = tuple(value for name, value in vars(rule).items() if name.isupper() and isinstance(value, str))
STRICT = Rules(
    engine="it",
    layers=rule.MOE,
    source="nothing",
    effects={name: Effect(level=ERROR, does="stops") for name in EVERY},
)
KNOWN = Deployment(ranks=2, experts=3, moe_layers=(0,))


def _file(*rows: tuple[object, ...], **more: object) -> EngineFile:
    return EngineFile(path=Path("f.json"), layers=tuple(range(len(rows))), rows=rows, **more)  # type: ignore[arg-type]


def _said(file: EngineFile, deployment: Deployment = KNOWN, rules: Rules = STRICT) -> list[tuple[str, str]]:
    return [(finding.rule, finding.message.partition(";")[0]) for finding in check_file(rules, file, deployment)]


@pytest.mark.parametrize("name", exports.names())
def test_every_engine_says_what_it_does_with_every_universal_rule(name: str) -> None:
    rules = exports.load(name).RULES
    assert set(UNIVERSAL) - set(rules.effects) == set()
    assert set(rules.effects) <= set(EVERY)
    assert {effect.level for effect in rules.effects.values()} <= {ERROR, WARNING}
    assert rules.source != "" and rules.layers in (rule.HIDDEN, rule.MOE, rule.ABSOLUTE)


def test_the_documented_table_is_what_the_rules_say() -> None:
    """Levels by rule and engine in docs/formats.md; one of vLLM's formats has a column of its own."""
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    by_engine = {name: exports.load(name).RULES.effects for name in exports.names()}
    by_engine["pr53022"] = vllm_expert_map.RULES.effects
    head, table = text.partition("| rule | broken by |")[2].partition("\n")[0], {}
    names = [cell.strip(" `") for cell in head.strip("|").split("|")]
    assert names == list(by_engine)
    for line in text.partition("| rule | broken by |")[2].partition("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        table[cells[0].strip("`")] = dict(zip(names, cells[2:], strict=True))
    known = sorted({found for effects in by_engine.values() for found in effects})
    assert sorted(table) == known
    for found in known:
        said = {name: effects[found].level if found in effects else "–" for name, effects in by_engine.items()}
        assert table[found] == said, found


def test_a_rule_that_means_nothing_to_an_engine_is_not_reported() -> None:
    silent = Rules(engine="it", layers=rule.MOE, source="nothing", effects={})
    assert check_file(silent, _file((0, 0, -1, 9.5)), KNOWN) == []


def test_a_finding_names_rule_level_place_and_effect() -> None:
    assert check_file(STRICT, _file((0, 1, -2, 2)), KNOWN) == [
        Finding(level=ERROR, message="expert -2; it stops", layer=0, slot=2, rule=rule.NEGATIVE)
    ]


def test_what_is_not_known_is_said_and_not_checked() -> None:
    findings = check_file(STRICT, _file((0, 1, 2), (0, 0, 0)), Deployment())
    assert [(finding.level, finding.rule) for finding in findings] == [
        (WARNING, rule.UNCHECKED),
        (WARNING, rule.UNCHECKED),
        (WARNING, rule.UNCHECKED),
        (ERROR, rule.COVERAGE),
    ]
    assert [finding.message for finding in findings[:3]] == [
        "the number of ranks is not known: divisibility and duplicates are not checked (--ranks)",
        "the number of experts is not known: taken as 3, the largest id + 1 (--experts)",
        "the model is not known: the number of layers is not checked (--model)",
    ]


@pytest.mark.parametrize(
    ("slots", "experts", "expected"),
    [
        (1031, 8, []),
        (2047, 1024, []),
        (32767, 1024, [(rule.REDUNDANT_LIMIT, "31743 redundant slots, more than 1023")]),
        (
            32768,
            1024,
            [
                (rule.SLOT_LIMIT, "32768 slots, more than 32767"),
                (rule.REDUNDANT_LIMIT, "31744 redundant slots, more than 1023"),
            ],
        ),
        (1025, 1025, [(rule.EXPERT_LIMIT, "1025 experts, more than 1024")]),
        (1032, 8, [(rule.REDUNDANT_LIMIT, "1024 redundant slots, more than 1023")]),
    ],
)
def test_limits_of_slots_and_experts(slots: int, experts: int, expected: list[tuple[str, str]]) -> None:
    found = _said(_file(tuple(slot % experts for slot in range(slots))), Deployment(experts=experts))
    limits = (rule.SLOT_LIMIT, rule.EXPERT_LIMIT, rule.REDUNDANT_LIMIT)
    assert [entry for entry in found if entry[0] in limits] == expected


def test_a_damaged_id_does_not_make_an_endless_list_of_lost_experts() -> None:
    findings = _said(_file((0, 1, 10**18, 2)), Deployment(ranks=2, moe_layers=(0,)))
    assert findings[-1] == (rule.COVERAGE, f"expert 3 has no replica ({10**18 - 4} more in this layer)")


def test_devices_decide_where_a_duplicate_is() -> None:
    file = _file((0, 1, 0, 2), ranks_of_rows=((3, 1),))
    assert _said(file) == [
        (rule.UNEVEN, "devices of 1 to 3 slots"),
        (rule.DUPLICATE, "expert 0 is already on rank 0 (slot 0)"),
    ]
    assert _said(_file((0, 1, 0, 2))) == []


def test_layers_with_other_numbers_of_devices() -> None:
    file = _file((0, 1, 2, 0, 1, 2), (0, 1, 2, 0, 1, 2), ranks_of_rows=((3, 3), (2, 2, 2)))
    assert _said(file, Deployment(experts=3, moe_layers=(0, 1))) == [
        (rule.DEVICES, "3 devices, other layers have 2"),
    ]
    assert _said(file, Deployment(ranks=3, experts=3, moe_layers=(0, 1))) == [(rule.DEVICES, "2 devices for 3 ranks")]


def test_a_file_without_layers() -> None:
    assert _said(_file()) == [
        (rule.LAYERS, "the file has no layer"),
        (rule.LAYERS, "0 layers, the model has 1 MoE layers"),
    ]


def test_long_values_are_cut_short() -> None:
    assert _said(_file((0, 1, 2, "x" * 99))) == [(rule.NOT_INTEGER, f"'{'x' * 36}... is not a whole number")]


def test_a_missing_mtp_row_is_only_missed_where_it_means_something() -> None:
    deployment = Deployment(ranks=2, experts=3, moe_layers=(0,), mtp_layers=(1,))
    assert _said(_file((0, 1, 0, 2)), deployment) == [(rule.MTP, "no row for MTP layer 1")]
    assert _said(_file((0, 1, 0, 2), (0, 1, 0, 2)), deployment) == []
