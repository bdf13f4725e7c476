"""Small searches worked out by hand, node by node."""

from __future__ import annotations

from math import log, sqrt

import pytest
from small_world import QUERY, case, endless, play, reply

from waysout.domain.result import OutcomeKind
from waysout.domain.rules import MaxChanges
from waysout.llm.base import Reply
from waysout.prompts.propose import Style
from waysout.prompts.render import Tag
from waysout.search.comp_mcts import CompMCTS
from waysout.search.compress import History, compressor
from waysout.search.lats import Lats
from waysout.search.loop import TreeSearch
from waysout.search.tree import uct

# Without the bonus the reward is 1 for a yes and 0 for a no.
YES_NO = Lats(bonus=0)


def test_selection_follows_uct() -> None:
    """1 goes first, with W = 1 and N = 1. Then it scores 2/3 + √2·√(ln 4 / 3) = 1.628, and 2, which
    nobody looked into, √2·√ln 4 = 1.665. Then they have 2/3 and 1/3 with three visits each.
    """
    played = play(
        YES_NO,
        case(),
        [
            reply("a=5", "b=1"),  # 1: yes, 2: no
            reply("c=y", "a=1"),  # 3: yes, 4: no
            reply("b=2", "a=4"),  # 5: no, 6: yes
            reply("c=z", "b=9"),  # 7: yes, 8: yes
        ],
    )
    assert played.expanded[:4] == [0, 1, 2, 3]
    assert played.tree == [
        (None, "", 8, 5.0),
        (0, "a=5", 5, 4.0),
        (0, "b=1", 3, 1.0),
        (1, "c=y", 3, 3.0),
        (1, "a=1", 1, 0.0),
        (2, "b=2", 1, 0.0),
        (2, "a=4", 1, 1.0),
        (3, "c=z", 1, 1.0),
        (3, "b=9", 1, 1.0),
    ]


def test_the_scores_of_that_selection() -> None:
    played = play(YES_NO, case(), [reply("a=5", "b=1"), reply("c=y", "a=1")])
    assert isinstance(played.search, TreeSearch)
    root, one, two = played.search.tree.nodes[:3]
    two.waiting = root.waiting = 0  # the third request is out by now
    assert uct(one, root) == pytest.approx(2 / 3 + sqrt(2) * sqrt(log(4) / 3))
    assert uct(two, root) == pytest.approx(sqrt(2) * sqrt(log(4)))


def test_equals_go_in_the_order_they_were_made() -> None:
    """1 and 2 are equal before anything and again when each has one child; then so are 3 and 4."""
    played = play(YES_NO, case(), [reply("a=5", "a=6"), reply("b=1"), reply("b=1")])
    assert played.expanded == [0, 1, 2, 3]


def test_a_tree_with_nothing_left_to_expand_ends_early_and_says_so() -> None:
    played = play(Lats(depth=1), case(k=3), endless("a=5", "b=5", "c=y"))
    assert len(played.requests) == 1
    assert played.search.done
    assert played.search.ending is not None
    assert played.search.ending.kind is OutcomeKind.EXHAUSTED
    assert [node[0] for node in played.tree] == [None, 0, 0, 0]


def test_nodes_at_the_depth_limit_are_evaluated_and_never_expanded() -> None:
    played = play(CompMCTS(depth=2, pruning="none"), case(k=2), endless("a=5", "b=5"))
    assert isinstance(played.search, TreeSearch)
    tree = played.search.tree
    # Below a=5 only b=5 is a change, and the other way round: two nodes at depth 2.
    assert [n.depth for n in tree.nodes] == [0, 1, 1, 2, 2]
    assert played.expanded == [0, 1, 2]
    assert all(n.closed for n in tree.nodes)
    assert played.search.archive.evaluated == 4


def test_approved_nodes_stay_expandable() -> None:
    played = play(YES_NO, case(), [reply("a=5", "a=6"), reply("b=1", "c=y")])
    assert played.expanded[1] == 1
    assert isinstance(played.search, TreeSearch)
    assert played.search.tree[1].approved


def test_where_all_are_pruned_the_same_leaf_is_asked_again_and_told_so() -> None:
    played = play(CompMCTS(threshold=1000), case(calls=3), endless("a=5", "b=1"))
    assert played.expanded == [0, 0, 0]
    assert len(played.tree) == 1
    assert played.tree[0][2:] == (0, 0.0)  # nothing was backed up
    assert played.search.archive.pruned == 6
    assert played.search.archive.evaluated == 0
    assert [r.messages[0].content.count("[PRUNED] a=5") for r in played.requests] == [0, 1, 2]
    assert len({r.key("any") for r in played.requests}) == 3


def test_duplicates_are_evaluated_and_count_once() -> None:
    played = play(CompMCTS(pruning="none"), case(calls=1, k=3), [reply("a=5", "a=5", "a=5")])
    archive = played.search.archive
    assert (archive.evaluated, archive.valid, len(archive)) == (3, 3, 1)
    assert len(played.tree) == 4


def test_what_says_nothing_new_is_pruned_and_remembered() -> None:
    """The row of node 1 comes again below node 2: ΔC is 3 bytes of 22, where b=7 had 6."""
    played = play(
        CompMCTS(scope="global", threshold=0.15),
        case(calls=3, k=1),
        [reply("a=5"), reply("b=7"), reply("b=0")],
    )
    assert isinstance(played.search, TreeSearch)
    assert [a.tag for a in played.search.tree[2].attempts] == [Tag.PRUNED]
    assert [node[:2] for node in played.tree] == [(None, ""), (0, "a=5"), (1, "b=7")]


def test_with_one_candidate_the_deepest_node_on_the_path_is_widened() -> None:
    played = play(
        YES_NO,
        case(calls=8, k=1),
        [reply(f"a={n}") if n % 2 else reply(f"b={n}") for n in range(1, 9)],
    )
    assert played.expanded == [0, 1, 2, 3, 4, 4, 4, 4]
    assert played.search.ending is not None
    assert played.search.ending.kind is OutcomeKind.BUDGET_SPENT


def test_lats_rewards_what_is_proposed_again() -> None:
    """a=5 is two of three edits at the root: 1 + 0.3·2/3; b=1 is refused and one of three."""
    played = play(Lats(), case(k=3), [reply("a=5", "b=1", "a=5")])
    assert [node[3] for node in played.tree[1:]] == [1.2, 0.1, 1.2]
    assert played.tree[0][2:] == (3, 2.5)


def test_diversity_prompted_lats_names_the_features_of_the_path() -> None:
    plain = play(Lats(), case(k=1), [reply("a=5"), reply("b=1")])
    hinted = play(Lats(diversity=True), case(k=1), [reply("a=5"), reply("b=1")])
    assert "Recent attempts changed" not in plain.requests[2].messages[0].content
    prompts = [r.messages[0].content for r in hinted.requests]
    assert "Recent attempts changed" not in prompts[0]
    assert "Recent attempts changed: a." in prompts[1]
    assert "Recent attempts changed: a, b." in prompts[2]


def test_the_first_reply_is_useless_and_costs_a_call() -> None:
    played = play(YES_NO, case(calls=2), [Reply("I cannot help"), reply("a=5", "b=1")])
    assert played.expanded == [0, 0]
    assert played.search.archive.rejections == {"unparsable": 1}
    assert len(played.tree) == 3


def test_rows_are_cut_to_what_is_left() -> None:
    replies = [reply("a=5", "b=1"), reply("c=y", "c=z")]
    played = play(CompMCTS(pruning="none"), case(rows=3), replies)
    assert played.search.archive.evaluated == 3
    assert played.search.archive.rejections == {"beyond the row budget": 1}
    assert played.search.ending is not None
    assert played.search.ending.reason == "all 3 oracle rows are spent"


def test_an_option_tells_the_reasons_of_the_edits_that_stand() -> None:
    played = play(YES_NO, case(k=1), [reply("a=5"), reply("b=1"), reply("b=2")])
    last = played.search.archive.options()[-1]
    assert dict(last.changes) == {"a": (0, 5), "b": (0, 2)}
    assert last.reasons == ("a: because of a", "b: because of b")


def test_our_template_shows_whole_changes_with_their_chance() -> None:
    given = case(k=1, style=Style("waysout", constrain=False))
    played = play(Lats(memory=10), given, [reply("a=4"), reply("b=2")])
    assert "- a=4: rejected, chance 40%" in played.requests[1].messages[0].content
    assert "- a=4, b=2: approved, chance 60%" in played.requests[2].messages[0].content


def test_a_reply_is_remembered_in_its_own_order() -> None:
    """Of c=z and b=0, only the second repeats a row; it is remembered second all the same."""
    played = play(
        CompMCTS(scope="global", threshold=0.15),
        case(calls=3),
        [reply("a=5"), reply("b=7"), reply("c=z", "b=0")],
    )
    assert isinstance(played.search, TreeSearch)
    tried = [(a.edit.feature, a.tag) for a in played.search.tree[2].attempts]
    assert tried == [("c", Tag.APPROVED), ("b", Tag.PRUNED)]


def test_the_global_history_holds_each_node_once() -> None:
    """Judged three times with ever more history, a key gains what it would gain from scratch."""
    method = CompMCTS(scope="global", threshold=0.0, reward="baseline", history="all")
    played = play(method, case(calls=4, k=1), [reply(e) for e in ("a=1", "b=1", "a=2", "b=2")])
    assert isinstance(played.search, TreeSearch)
    keys = [node.key for node in played.search.tree.nodes[1:]]
    gains = [History(compressor("gzip"), keys[:i]).gain(keys[i]) for i in range(4)]
    rewards = [0.5 * min(max(gain, 0.0), 1.0) for gain in gains]
    assert played.tree[0][3] == pytest.approx(sum(rewards), abs=1e-4)


PRUNED_WHOLE = [reply(f"a={i}", f"b={i}") for i in range(1, 10)]


@pytest.mark.parametrize(
    ("patience", "expanded"),
    [
        (0, [0, 1, 1, 1, 1, 1, 1, 1]),
        (1, [0, 1, 2, 0, 3, 4, 0, 5]),
        (2, [0, 1, 1, 2, 2, 0, 3, 3]),
    ],
)
def test_a_leaf_whose_replies_are_pruned_whole(patience: int, expanded: list[int]) -> None:
    """Below the root everything is pruned: θ lies above what a third key can add to two."""
    method = CompMCTS(threshold=0.2, patience=patience)
    played = play(method, case(calls=8), PRUNED_WHOLE)
    assert played.expanded == expanded
    assert played.search.archive.evaluated == 2 * expanded.count(0)
    assert played.search.archive.pruned == 2 * (8 - expanded.count(0))


def test_unreadable_replies_try_nobodys_patience() -> None:
    method = CompMCTS(threshold=0.2, patience=1)
    unreadable = [Reply("I cannot help")] * 3
    played = play(method, case(calls=5), [PRUNED_WHOLE[0], *unreadable, PRUNED_WHOLE[1]])
    assert played.expanded == [0, 1, 1, 1, 1]


def test_lats_tells_nothing_of_earlier_attempts() -> None:
    replies = [reply("a=1"), reply("b=1"), reply("a=2")]
    told = [
        "Previous attempts" in request.messages[0].content
        for memory in (0, 10)
        for request in play(Lats(memory=memory), case(calls=3, k=1), replies).requests
    ]
    assert Lats().memory == 0
    assert told == [False, False, False, False, True, True]


def test_an_edit_that_changes_nothing_is_refused_or_costs_a_row() -> None:
    replies = [reply("a=0", "b=5"), reply("b=5", "b=0")]
    refused = play(CompMCTS(pruning="none"), case(calls=2), replies).search.archive
    assert (refused.evaluated, refused.valid) == (1, 1)
    assert refused.rejections == {"no change": 3}
    style = Style("paper", constrain=False, strict=True, unchanged=True)
    asked = play(CompMCTS(pruning="none"), case(calls=2, style=style), replies)
    archive = asked.search.archive
    # a=0 is the query, which is no option, whatever its key; b=5 found nothing a second time.
    assert (archive.evaluated, archive.valid, len(archive.options())) == (4, 2, 1)
    assert not archive.rejections
    assert QUERY not in archive.answered
    assert [dict(miss.changes) for miss in archive.near_misses()] == []


def test_baseline_is_found_however_it_is_written() -> None:
    replies = [reply("a=1", "b=1"), reply("c=y", "c=z")]
    trees = [
        play(CompMCTS(pruning="none", reward=name), case(calls=2), replies).tree
        for name in ("baseline", " BASELINE ")
    ]
    assert trees[0] == trees[1]
    assert trees[0][1][3] > 0


def test_a_leaf_that_cannot_be_expanded_is_widened_above() -> None:
    """At most one change: node 1 can only move its own feature, and c has but two other levels."""
    played = play(
        YES_NO, case(MaxChanges(at_most=1), calls=6, k=1), [reply(e) for e in ("c=y", "c=z", "a=5")]
    )
    assert played.expanded[:2] == [0, 1]
    menus = [{item.name for item in request.menu} for request in played.requests]
    assert menus[0] == {"a", "b", "c"}
    assert menus[1] == {"c"}
