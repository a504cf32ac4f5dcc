"""Whole layers: curves, hand-worked parts, and the bracket between serial and hidden communication."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.whole_layer import GemmCurves, Layer, core_us, rows_us
from tests.bench import accuracy_layer
from tests.bench.accuracy_layers import DEPLOYMENTS

TABLE = "m,k,n,latency_us,mfu\n16,8,4,10,0.1\n64,8,4,20,0.1\n32,8,4,12,0.1\n16,4,2,5,0.1\n"
LAYER = Layer(fixed_us=100.0, expert_us=50.0, link_us=120.0, dense_us=200.0, slow_down=1.2)


def curves(tmp_path: Path, text: str = TABLE) -> GemmCurves:
    path = tmp_path / "gemm.csv"
    path.write_text(text, encoding="utf-8")
    return GemmCurves.read(path)


@pytest.mark.parametrize(("tokens", "us"), [(1, 10), (16, 10), (24, 11), (32, 12), (48, 16), (64, 20)])
def test_a_curve_is_linear_between_tokens_and_flat_below(tmp_path: Path, tokens: int, us: float) -> None:
    assert curves(tmp_path).us(tokens, ((8, 4),)) == pytest.approx(us)


def test_gemms_follow_each_other(tmp_path: Path) -> None:
    assert curves(tmp_path).us(16, ((8, 4), (4, 2))) == 15


@pytest.mark.parametrize(("tokens", "shape"), [(65, (8, 4)), (17, (4, 2)), (16, (4, 8))])
def test_what_was_not_measured_is_refused(tmp_path: Path, tokens: int, shape: tuple[int, int]) -> None:
    with pytest.raises(ProfileError, match=f"has no {tokens} tokens"):
        curves(tmp_path).us(tokens, (shape,))


def test_tables_that_are_none_are_refused(tmp_path: Path) -> None:
    for text in ("m,k,n\n1,2,3\n", TABLE + "64,8,4,fast,0\n", TABLE + "64\n"):
        with pytest.raises(ProfileError, match="not a GEMM table"):
            curves(tmp_path, text)
    with pytest.raises(ProfileError, match="cannot read"):
        GemmCurves.read(tmp_path / "absent.csv")


def test_the_bracket_of_a_model() -> None:
    """58 layers of 270 µs and 3 dense ones of 200 µs; overlapped, (100 + 50)·1.2 = 180 µs hide 120."""
    assert LAYER.serial_s == pytest.approx((58 * 270 + 3 * 200) * 1e-6)
    assert LAYER.overlap_s == pytest.approx((58 * 180 + 3 * 200) * 1e-6)
    assert [LAYER.hidden(time) for time in (LAYER.serial_s, LAYER.overlap_s)] == [0.0, 1.0]
    assert LAYER.hidden((LAYER.serial_s + LAYER.overlap_s) / 2) == pytest.approx(0.5)


def test_skew_slows_experts_and_links() -> None:
    both, alone = LAYER.skewed(1.5), LAYER.skewed(1.5, links=False)
    assert (both.expert_us, both.link_us, both.fixed_us) == (75, 180, 100)
    assert (alone.expert_us, alone.link_us) == (75, 120)
    assert both.overlap_s == pytest.approx((58 * 210 + 600) * 1e-6)
    gain = both.serial_s / LAYER.serial_s - 1
    assert LAYER.imbalance_of(gain) == pytest.approx(1.5)


def test_attention_cores_by_hand() -> None:
    """A query on 1000 keys: 2 · 128 heads · 1088 · 1000 operations; causal prefill does 1/1.8 of them at width 320."""
    assert core_us(1, 1000, "decode", 1e12) == pytest.approx(2 * 128 * 1088 * 1000 / (0.49 * 1e12) * 1e6)
    assert core_us(1, 1000, "prefill", 1e12) == pytest.approx(2 * 128 * 320 * 1000 / 1.8 / (0.735 * 1e12) * 1e6)


def test_row_passes_by_hand() -> None:
    """Bytes of a token: 11 · 7168 and 8 · (6 · 7168 + 5 · 2048)."""
    assert rows_us(10, 1e12) == pytest.approx(10 * (78_848 + 8 * 53_248) / 1e12 * 1e6)


@pytest.mark.skipif(not accuracy_layer.CURVES.is_file(), reason="the measured GEMM curves are not here")
def test_published_points_lie_inside_the_bracket_of_measured_parts() -> None:
    found = accuracy_layer.rows()
    assert [row.run.name for row in found if not row.holds] == []
    assert all(line.passed for line in accuracy_layer.lines(found))
    for row in found:
        assert row.shared_us == pytest.approx(row.run.shared_us, rel=0.02)
        if row.run.name not in accuracy_layer.CONTEXTS:
            assert row.attention_us == pytest.approx(row.run.attention_us, rel=0.03)
    assert len(found) == len(DEPLOYMENTS) == 6


def test_without_the_curves_a_line_is_printed_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(accuracy_layer, "CURVES", tmp_path / "absent.csv")
    assert accuracy_layer.main() == 0
    assert capsys.readouterr().out == f"accuracy_layer: skipped, no measured curves at {tmp_path / 'absent.csv'}\n"
