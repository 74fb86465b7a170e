"""The page of a demo: one headline, two timelines on one axis, cards to copy from, and what a real Slurm measured."""

import re
from dataclasses import replace
from html import unescape

import pytest

from fleetlab.studies.demo import demo
from fleetlab.studies.story import about, story


@pytest.fixture(scope="module")
def sample():
    return demo("sample")


@pytest.fixture(scope="module")
def page(sample, tmp_path_factory):
    return story(sample, tmp_path_factory.mktemp("story") / "demo.html").read_text("utf-8")


def test_the_headline_is_the_wait_and_what_one_line_makes_of_it(page):
    assert re.search(r"<h1>Jobs wait \d+ s on average\. One line of configuration makes it \d+ s\.</h1>", page)


def test_before_and_after_are_one_figure_and_all_else_is_folded(page):
    first, folded = page.split('<details class="rest">')
    assert first.count('class="cluster-timeline"') == 1
    assert '"label":"After: shorter scheduler loops"' in first
    assert '"label":"Before"' in first
    assert "<figure" not in first
    assert folded.count("<figure") > 5


def test_three_cards_have_effect_and_cost_and_the_line_to_copy(page, sample):
    cards = re.search(r'<ul class="cards">(.*?)</ul>', page)[1]
    assert cards.count("<li>") == 3
    assert f"<code>{sample.fixes[0].line}</code>" in cards


def test_the_real_slurm_has_the_last_word(page, sample):
    check = re.search(r'<p class="check">(.*?)</p>', page)[1]
    assert check.startswith("The real Slurm with this line measured 37 s; the simulation says ")
    assert sample.measured == pytest.approx(36.5, abs=0.1)


def test_it_opens_without_a_network(page):
    assert "default-src 'none'" in unescape(page)
    assert not re.findall(r'(?:src|href)="https?:', page)


def test_a_part_of_a_trace_is_named(sample):
    assert about(sample) == "A recorded log under Slurm: 1,000 jobs in 6 min on 20 nodes with 160 GPUs."
    assert about(replace(sample, window="the busiest 10,000")).endswith(" Simulated: the busiest 10,000.")


def test_without_a_fix_there_is_one_timeline_and_no_card(sample, tmp_path):
    alone = story(replace(sample, fixes=(), measured=None), tmp_path / "page.html").read_text("utf-8")
    first = alone.split('<details class="rest">')[0]
    assert "After" not in first
    assert "<li>" not in first
